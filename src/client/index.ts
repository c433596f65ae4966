// What `runledger/client` exports.

export {
  RunledgerClient,
  type BoardOptions,
  type ClientOptions,
  type EventsOptions,
  type ProgressOptions,
  type WatchOptions,
} from './client.js';
export { RunledgerError } from './error.js';
export type { Retry } from './live-iterator.js';
export type {
  AnyRunState,
  EventLevel,
  OpsRunState,
  PipelineRunState,
  RuleRunState,
  RunEvent,
  RunKind,
  RunState,
} from './shapes.js';
