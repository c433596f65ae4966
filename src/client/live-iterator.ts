// One subscription as an async iterator that outlives its connection. Invariants: what has arrived is handed out
// before a fault is told; leaving (`break`, `return()`), an abort and the client's end each let the server's
// subscription go at once and leave no timer behind; waiting grows from fault to fault, spread by chance so that
// many clients do not come back at the same moment, and begins anew with the next result.

import type { Connection, Result, Variables } from './connection.js';
import { endedByServer, fromFailures, fromFault, type RunledgerError } from './error.js';
import type { Inbox } from './inbox.js';

export interface Subscription<Item> {
  readonly query: string;
  /** Asked for anew at each attempt: says where to go on. */
  readonly variables: () => Variables;
  readonly inbox: Inbox<Item>;
  readonly read: (shown: Readonly<Record<string, unknown>>) => Item;
  /** Nothing comes after it. */
  readonly isLast: (item: Item) => boolean;
  /** It goes on, and something may have been missed between. */
  readonly onGap?: (() => void) | undefined;
}

export interface Retry {
  /** Counts the attempts since something was last heard: 1, 2, 3 … */
  readonly attempt: number;
  readonly waitMs: number;
}

export interface Patience {
  /** 250 unless given. */
  readonly firstWaitMs?: number;
  /** 10,000 unless given. */
  readonly longestWaitMs?: number;
  /** Attempts in a row, after which the fault is thrown; unlimited unless given. */
  readonly maxRetries?: number;
  /** Told of every interruption that is being waited out. */
  readonly onRetry?: (error: RunledgerError, retry: Retry) => void;
}

const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 10_000;
/** A server that is there and refuses, as it says for now, is believed this often in a row. */
const MOST_REFUSALS = 10;

export class LiveIterator<Item> implements AsyncIterableIterator<Item, undefined> {
  private unsubscribe: (() => void) | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private waiting: (() => void)[] = [];
  private attempts = 0;
  /** Of the last attempts, those to which somebody said no. */
  private refusals = 0;
  private ended = false;
  private fault: { readonly error: unknown } | null = null;

  constructor(
    private readonly connection: Connection,
    private readonly subscription: Subscription<Item>,
    private readonly patience: Patience,
    private readonly signal: AbortSignal | undefined,
    private readonly onEnd: (iterator: LiveIterator<Item>) => void,
  ) {}

  start(): void {
    if (this.signal?.aborted) return this.abort();
    this.signal?.addEventListener('abort', this.abort);
    this.subscribe();
  }

  async next(): Promise<IteratorResult<Item, undefined>> {
    const { inbox, isLast } = this.subscription;
    for (;;) {
      const item = inbox.take();
      if (item !== undefined) {
        if (isLast(item)) this.end();
        else this.subscribeIfPaused();
        return { done: false, value: item };
      }
      if (this.ended) return this.finish();
      await new Promise<void>((resolve) => this.waiting.push(resolve));
    }
  }

  return(): Promise<IteratorResult<Item, undefined>> {
    this.discard();
    return Promise.resolve({ done: true, value: undefined });
  }

  throw(error: unknown): Promise<IteratorResult<Item, undefined>> {
    this.discard();
    return Promise.reject(error);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** What has arrived is not handed out any more. */
  discard(): void {
    this.end();
    this.fault = null;
    while (this.subscription.inbox.take() !== undefined);
  }

  private subscribe(onHeard?: () => void): void {
    const { query, variables } = this.subscription;
    // A subscription that we have let go may still report: that is nobody's business any more.
    let isCurrent = true;
    const ifCurrent = (handle: () => void): void => void (isCurrent && handle());
    const stop = this.connection.subscribe(query, variables(), {
      next: (result) => ifCurrent(() => this.receive(result)),
      error: (fault) => ifCurrent(() => this.interrupt(fromFault(fault))),
      complete: () => ifCurrent(() => this.interrupt(endedByServer())),
    });
    const forget = onHeard && this.connection.whenHeard(onHeard);
    this.unsubscribe = () => {
      isCurrent = false;
      forget?.();
      stop();
    };
  }

  private receive({ data, errors }: Result): void {
    if (errors) return this.interrupt(fromFailures(errors));
    this.attempts = this.refusals = 0;
    const { inbox, read } = this.subscription;
    for (const shown of Object.values(data ?? {})) inbox.put(read(shown as Record<string, unknown>));
    if (inbox.isFull) this.release();
    this.wake();
  }

  private subscribeIfPaused(): void {
    const isPaused = this.unsubscribe === null && this.timer === undefined && !this.ended;
    if (isPaused && this.subscription.inbox.isEmpty) this.subscribe();
  }

  private interrupt(error: RunledgerError): void {
    this.release();
    this.attempts += 1;
    this.refusals = error.isAnswer ? this.refusals + 1 : 0;
    const { maxRetries = Infinity, onRetry } = this.patience;
    const isEnough = this.attempts > maxRetries || this.refusals > MOST_REFUSALS;
    const isPassing = error.isPassing || (error.isAboutKey && this.connection.mayHaveNewKey);
    if (!isPassing || isEnough) return this.fail(error);
    const waitMs = this.nextWait();
    this.timer = setTimeout(() => this.resume(), waitMs);
    onRetry?.(error, { attempt: this.attempts, waitMs });
  }

  private resume(): void {
    this.timer = undefined;
    // Told when the server has heard of us again: whoever looks then misses nothing.
    this.subscribe(this.subscription.onGap);
  }

  private nextWait(): number {
    const { firstWaitMs = FIRST_WAIT_MS, longestWaitMs = LONGEST_WAIT_MS } = this.patience;
    const wait = Math.min(firstWaitMs * 2 ** (this.attempts - 1), longestWaitMs);
    return wait * (0.5 + Math.random() / 2);
  }

  private readonly abort = (): void => {
    this.discard();
    this.fault = { error: this.signal?.reason };
  };

  private fail(error: unknown): void {
    if (this.ended) return;
    this.fault = { error };
    this.end();
  }

  private end(): void {
    if (this.ended) return;
    this.ended = true;
    this.signal?.removeEventListener('abort', this.abort);
    this.release();
    this.onEnd(this);
    this.wake();
  }

  private release(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.unsubscribe?.();
    this.unsubscribe = null;
  }

  private wake(): void {
    for (const resolve of this.waiting.splice(0)) resolve();
  }

  private finish(): IteratorResult<Item, undefined> {
    const { fault } = this;
    this.fault = null;
    if (fault !== null) throw fault.error;
    return { done: true, value: undefined };
  }
}
