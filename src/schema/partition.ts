// Partitions of pipeline runs, and the records that were set aside.

import { Field, ID, Int, ObjectType } from 'type-graphql';
import type { PartitionStatus } from '../domain/partition.js';
import { defineEnum } from './enum.js';
import { connectionOf } from './page.js';
import { DateTimeScalar, JsonScalar } from './scalar.js';

export const PartitionStatusEnum = defineEnum<PartitionStatus>(
  'PartitionStatus',
  'Where a partition stands.',
  {
    pending: 'Nothing of it was read yet, or it is to be continued.',
    running: 'It is read page by page.',
    completed: 'Its last page is in.',
    failed: 'A permanent error, or the deliveries of a page were used up.',
  },
);

@ObjectType({ simpleResolvers: true, description: 'One range of a feed, read page by page.' })
export class Partition {
  @Field(() => String, { description: 'Its name within the run.' })
  partitionId!: string;

  @Field(() => PartitionStatusEnum, { description: 'Where it stands.' })
  status!: PartitionStatus;

  @Field(() => Int, {
    description: 'How many records its pages went past; what it went back over counts again.',
  })
  nextOffset!: number;

  @Field(() => Boolean, { description: 'Whether its last page is in.' })
  completed!: boolean;

  @Field(() => Int, { description: 'Records read so far.' })
  recordsProcessed!: number;

  @Field(() => Int, { description: 'Of these, records that the run had read before.' })
  recordsDuplicated!: number;

  @Field(() => Int, { description: 'Of these, records that were set aside.' })
  recordsRejected!: number;

  @Field(() => Int, { description: 'Records that the source counted in it and never gave.' })
  recordsMissing!: number;

  @Field(() => Int, { description: 'Deliveries of the page at hand; 0 between pages.' })
  attempts!: number;

  @Field(() => String, { nullable: true, description: 'What went wrong last, while it is not overcome.' })
  errorMessage!: string | null;

  @Field(() => JsonScalar, {
    description: 'What its pages are asked for with: the range and the length of a page.',
  })
  payload!: unknown;

  @Field(() => String, { description: 'The worker that read of it last; empty before the first.' })
  workerId!: string;

  @Field(() => DateTimeScalar, { nullable: true, description: 'When its first page was claimed.' })
  startedAt!: Date | null;

  @Field(() => DateTimeScalar, { nullable: true, description: 'When it completed or failed.' })
  completedAt!: Date | null;

  @Field(() => DateTimeScalar, { description: 'When it last got on.' })
  updatedAt!: Date;

  @Field(() => Boolean, {
    description:
      'Whether it ought to be read and has not got on for ten minutes (RUNLEDGER_STUCK_MS). One that was not begun only ' +
      'waits its turn while others of its run get on.',
  })
  stuck!: boolean;
}

@ObjectType({
  simpleResolvers: true,
  description: 'A record that was set aside: it is in nobody’s way, and not lost.',
})
export class RejectedRecord {
  @Field(() => ID, { description: 'Its number.' })
  id!: string;

  @Field(() => String, {
    nullable: true,
    description: 'The partition it came with; null when consolidation refused it.',
  })
  partitionId!: string | null;

  @Field(() => String, { nullable: true, description: 'Its id in the feed, when it has a usable one.' })
  externalId!: string | null;

  @Field(() => String, { description: 'Why.' })
  reason!: string;

  @Field(() => JsonScalar, { description: 'The record, or as much of it as can be kept.' })
  payload!: unknown;

  @Field(() => DateTimeScalar, { description: 'When it was set aside.' })
  createdAt!: Date;
}

@ObjectType({ simpleResolvers: true, description: 'A page of records that were set aside, in that order.' })
export class RejectedRecordConnection extends connectionOf('RejectedRecord', () => RejectedRecord) {}
