// What every kind of run shares, and the lines of the ledger.

import { Field, ID, Int, InterfaceType, ObjectType } from 'type-graphql';
import type { EventLevel, RunKind } from '../domain/run.js';
import { defineEnum } from './enum.js';
import { Node } from './node.js';
import { connectionOf } from './page.js';
import { DateTimeScalar, JsonScalar } from './scalar.js';

export const RunKindEnum = defineEnum<RunKind>('RunKind', 'The kinds of run.', {
  RULE: 'Price changes pushed to a sales channel.',
  PIPELINE: "A supplier's feed brought into the catalog.",
  OPS: "Work done by somebody else's workers: a deploy, a backup.",
});

export const EventLevelEnum = defineEnum<EventLevel>('EventLevel', 'How grave a line of the ledger is.', {
  DEBUG: 'Of use to whoever looks for a fault.',
  INFO: 'The ordinary course of things.',
  WARN: 'Something went wrong and will be tried again.',
  ERROR: 'Something went wrong for good.',
});

@InterfaceType({ implements: Node, description: 'What every kind of run shares.' })
export abstract class Run extends Node {
  @Field(() => RunKindEnum, { description: 'What kind of run it is.' })
  kind!: RunKind;

  @Field(() => String, { description: 'The label it was filed under.' })
  projectId!: string;

  @Field(() => DateTimeScalar, { description: 'When it was made.' })
  createdAt!: Date;

  @Field(() => DateTimeScalar, { nullable: true, description: 'When work on it began.' })
  startedAt!: Date | null;

  @Field(() => DateTimeScalar, { nullable: true, description: 'When it came to an end.' })
  finishedAt!: Date | null;

  @Field(() => JsonScalar, { description: 'What its maker attached to it: a JSON object.' })
  metadata!: unknown;

  @Field(() => Int, { description: 'The seq of its newest event: subscribe to `runEvents` after it.' })
  lastSeq!: number;

  @Field(() => DateTimeScalar, {
    nullable: true,
    description:
      'When retention deleted its ledger and its parts. Its counts stay; nothing can be asked of it any more.',
  })
  prunedAt!: Date | null;

  @Field(() => Int, {
    nullable: true,
    description: 'Events up to this seq are deleted: `runEvents` begins after it.',
  })
  prunedSeq!: number | null;
}

@ObjectType({
  simpleResolvers: true,
  description:
    'One line of the append-only ledger. `seq` counts 1, 2, 3 … within a run, without a gap, in commit order.',
})
export class RunEvent {
  @Field(() => ID, { description: 'The run and the seq, in one.' })
  id!: string;

  @Field(() => ID, { description: 'The run it tells of.' })
  runId!: string;

  @Field(() => RunKindEnum, { description: 'What kind of run that is.' })
  runKind!: RunKind;

  @Field(() => Int, { description: 'Its number within the run.' })
  seq!: number;

  @Field(() => String, {
    description:
      'What happened: a machine and its event, e.g. rule_run.queue or rule_target.succeed, or log.',
  })
  type!: string;

  @Field(() => EventLevelEnum, { description: 'How grave it is.' })
  level!: EventLevel;

  @Field(() => String, { description: 'What happened, for a person to read.' })
  message!: string;

  @Field(() => JsonScalar, {
    description: 'The facts: from, to, the ids of targets or partitions, attempt, error.',
  })
  payload!: unknown;

  @Field(() => String, { description: 'Who did it: an API key, a worker, or "system".' })
  actor!: string;

  @Field(() => DateTimeScalar, { description: 'When it happened.' })
  createdAt!: Date;
}

@ObjectType({ simpleResolvers: true, description: "A page of a run's ledger, oldest first." })
export class RunEventConnection extends connectionOf('RunEvent', () => RunEvent) {}
