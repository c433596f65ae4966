// The workers of the runner processes.

import { Field, ID, Int, ObjectType } from 'type-graphql';
import type { WorkerState } from '../domain/worker-loop.js';
import { defineEnum } from './enum.js';
import { DateTimeScalar } from './scalar.js';

export const WorkerStateEnum = defineEnum<WorkerState>('WorkerState', 'What a worker is doing.', {
  STARTUP: 'The process has just started.',
  CONNECTING: 'It makes sure that the database answers.',
  RECOVERY: 'It takes back leases that ran out.',
  POLLING: 'It looks for a run with work that is due.',
  BACKOFF: 'There is nothing to do: it decides how long to rest.',
  IDLE: 'It rests until a bell rings or the time is over.',
  CLAIMING: 'It takes leases.',
  PROCESSING: 'It calls the channel.',
  REPORTING_SUCCESS: 'It writes down results, all of them good.',
  REPORTING_FAILURE: 'It writes down results, some of them bad.',
  ERROR_WAIT: 'Something unexpected happened: it waits before it goes on.',
  STOPPED: 'It has ended.',
});

@ObjectType({
  simpleResolvers: true,
  description: 'One loop of a runner process, as last heard of: a sample, which leases do not depend on.',
})
export class Worker {
  @Field(() => ID, { description: 'How the ledger and the leases name it.' })
  id!: string;

  @Field(() => String, { description: 'The machine it runs on.' })
  host!: string;

  @Field(() => Int, { description: 'Its process there.' })
  pid!: number;

  @Field(() => WorkerStateEnum, { description: 'What it was doing.' })
  state!: WorkerState;

  @Field(() => Int, { description: 'How many leases it held.' })
  activeLeases!: number;

  @Field(() => DateTimeScalar, { description: 'When it started.' })
  startedAt!: Date;

  @Field(() => DateTimeScalar, { description: 'When it was last heard of.' })
  heartbeatAt!: Date;
}
