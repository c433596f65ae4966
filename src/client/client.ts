// A client for those who watch: subscriptions as async iterators that survive restarts of the server, of its
// database and of the network. Runs in Node and in browsers.

import { Connection, type ConnectionOptions, type Variables } from './connection.js';
import { LedgerInbox, StateInbox } from './inbox.js';
import { LiveIterator, type Patience, type Subscription } from './live-iterator.js';
import {
  BOARD_FIELDS,
  EVENT_FIELDS,
  isAtRest,
  PROGRESS_FIELDS,
  readBoardState,
  type AnyRunState,
  type OpsRunState,
  type PipelineRunState,
  type RuleRunState,
  type RunEvent,
  type RunKind,
} from './shapes.js';

export interface ClientOptions extends ConnectionOptions, Patience {}

export interface WatchOptions {
  /** Ends the iteration by throwing the signal's reason. */
  readonly signal?: AbortSignal;
  /** Fields to ask for beside those of the type, e.g. `channel { name }`. */
  readonly select?: string;
}

export interface EventsOptions extends WatchOptions {
  /** The last seq that the caller has; 0, for all of the ledger, unless given. */
  readonly after?: number;
}

export interface ProgressOptions extends WatchOptions {
  /** Goes on when the run has come to rest: somebody may retry it, or set it back. */
  readonly stay?: boolean;
}

export interface BoardOptions extends WatchOptions {
  readonly kind?: RunKind;
  readonly projectId?: string;
  /** The board was interrupted and goes on: runs that ended meanwhile may not be shown, so list them again. */
  readonly onGap?: () => void;
}

type Live<Item> = AsyncIterableIterator<Item, undefined>;

export class RunledgerClient {
  private readonly connection: Connection;
  private readonly open = new Set<{ discard(): void }>();

  constructor(private readonly options: ClientOptions) {
    this.connection = new Connection(options);
  }

  /** Every line of a run's ledger after `after`, then each as it is written: none missing, none twice, in order. */
  runEvents<More extends object = object>(runId: string, options: EventsOptions = {}): Live<RunEvent & More> {
    const inbox = new LedgerInbox<RunEvent & More>(options.after ?? 0);
    const query = `subscription ($runId: ID!, $after: Int) {
      runEvents(runId: $runId, after: $after) { ${EVENT_FIELDS} ${options.select ?? ''} } }`;
    return this.watch(options, {
      query,
      inbox,
      variables: () => ({ runId, after: inbox.cursor }),
      read: (shown) => shown as unknown as RunEvent & More,
      isLast: () => false,
    });
  }

  /** The run as it is now, then as it becomes, until it comes to rest. */
  ruleRunProgress<More extends object = object>(
    runId: string,
    options: ProgressOptions = {},
  ): Live<RuleRunState & More> {
    return this.progress('ruleRunProgress', 'RULE', runId, options);
  }

  /** The run as it is now, then as it becomes, until it comes to rest. */
  pipelineRunProgress<More extends object = object>(
    runId: string,
    options: ProgressOptions = {},
  ): Live<PipelineRunState & More> {
    return this.progress('pipelineRunProgress', 'PIPELINE', runId, options);
  }

  /** The run as it is now, then as it becomes, until it comes to rest. */
  opsRunProgress<More extends object = object>(
    runId: string,
    options: ProgressOptions = {},
  ): Live<OpsRunState & More> {
    return this.progress('opsRunProgress', 'OPS', runId, options);
  }

  /** The runs that are under way, the newest 100 of them, as they are now; then any run that changes. */
  runChanged<More extends object = object>(options: BoardOptions = {}): Live<AnyRunState & More> {
    const { kind = null, projectId = null, select = '', onGap } = options;
    return this.watch<AnyRunState & More>(options, {
      query: `subscription ($kind: RunKind, $projectId: String) {
        runChanged(kind: $kind, projectId: $projectId) { ${BOARD_FIELDS} ${select} } }`,
      inbox: new StateInbox(),
      variables: () => ({ kind, projectId }),
      read: (shown) => readBoardState(shown),
      isLast: () => false,
      onGap,
    });
  }

  /** Ends every iteration, as if each had been left. */
  close(): void {
    for (const iterator of this.open) iterator.discard();
    this.connection.close();
  }

  private progress<State extends AnyRunState>(
    field: string,
    kind: RunKind,
    runId: string,
    { select = '', stay = false, signal }: ProgressOptions,
  ): Live<State> {
    const variables: Variables = { runId };
    return this.watch<State>(signal ? { signal } : {}, {
      query: `subscription ($runId: ID!) { ${field}(runId: $runId) { ${PROGRESS_FIELDS[kind]} ${select} } }`,
      inbox: new StateInbox(),
      variables: () => variables,
      read: (shown) => shown as unknown as State,
      isLast: (run) => !stay && isAtRest(run),
    });
  }

  private watch<Item>({ signal }: WatchOptions, subscription: Subscription<Item>): Live<Item> {
    const iterator = new LiveIterator<Item>(this.connection, subscription, this.options, signal, (ended) =>
      this.open.delete(ended),
    );
    this.open.add(iterator);
    iterator.start();
    return iterator;
  }
}
