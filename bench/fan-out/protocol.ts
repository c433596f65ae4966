// What the processes of the benchmark say to each other, and the one subscription that all of them speak of.

/** Of the server that asks for one. */
export const API_KEY = 'a-key-for-the-benchmark';

/** In the order in which they take turns. */
export const CONTENDERS = ['raw', 'raw-joined', 'graphql-ws', 'mercurius', 'runledger'] as const;
export type Contender = (typeof CONTENDERS)[number];

export interface ServerTask {
  readonly contender: Contender;
  readonly databaseUrl: string;
  readonly runId: string;
  /** Where the run's ledger stands: what is older is no concern of this measurement. */
  readonly after: number;
}

export interface SubscriberTask {
  readonly url: string;
  readonly isRaw: boolean;
  readonly runId: string;
  readonly count: number;
  readonly after: number;
}

/** What a server process answers when it is asked. */
export interface Usage {
  readonly type: 'usage';
  readonly residentBytes: number;
  /** What is in use of the heap and of buffers beside it; unlike the former, the same from run to run. */
  readonly usedBytes: number;
  /** Microseconds of processor time since it started. */
  readonly cpu: number;
}

/** To the subscribers: tell whether each has heard the line with this seq, within a while. */
export interface ProveRequest {
  readonly type: 'prove';
  readonly seq: number;
}

export interface Proven {
  readonly type: 'proven';
  /** How many have not. */
  readonly missing: number;
}

/** To the subscribers: tell when each has got this many more events, with their latencies or without. */
export interface ExpectRequest {
  readonly type: 'expect';
  readonly events: number;
  readonly timed: boolean;
}

/** To the subscribers: open one more, which does not read. */
export interface DeafenRequest {
  readonly type: 'deafen';
}

/** To the subscribers: read on where nobody read, and tell what those sockets were closed with. */
export interface ListenRequest {
  readonly type: 'listen';
}

export interface Closed {
  readonly type: 'closed';
  readonly codes: readonly number[];
}

export interface Expected {
  readonly type: 'expected';
  /** When the last one came, on the clock that all processes of this machine share. */
  readonly lastAt: number;
  /** Milliseconds from commit to client. */
  readonly p50: number;
  readonly p99: number;
}

export const SUBSCRIPTION = `subscription ($runId: ID!, $after: Int) {
  runEvents(runId: $runId, after: $after) { seq type level message payload actor createdAt }
}`;

export const SDL = `
  scalar JSON
  scalar DateTime
  type RunEvent {
    seq: Int! type: String! level: String! message: String! payload: JSON! actor: String! createdAt: DateTime!
  }
  type Query { ok: Boolean }
  type Subscription { runEvents(runId: ID!, after: Int = 0): RunEvent! }`;

/** Milliseconds on the machine's monotonic clock. */
export const now = (): number => Number(process.hrtime.bigint()) / 1e6;

export function percentile(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? NaN;
}
