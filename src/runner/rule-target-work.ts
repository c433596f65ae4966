// One claimed batch on its way through the channel. Outcomes come in a few at a time and are settled while
// the rest is under way. A circuit that opens ends the calls that are not made yet, as does a channel that does not
// let us in any more; those that are made end with their own answers. Calls that hang are left behind, so that none
// of it holds up the loop; what waits behind slow ones goes back to the queue.

import type { Channel, Failure, ItemOutcome } from '../connectors/channel.js';
import type { RetryPolicy } from '../domain/retry-policy.js';
import { settlementOf } from '../domain/rule-target.js';
import type { ClaimedTarget } from '../store/claim.js';
import { isOverdue, type BatchSize } from './batch-size.js';
import type { Passage } from './channel-gate.js';
import { tellingOf } from './log.js';
import { LeasedBatch, type LeasedBatchOptions } from './leased-batch.js';
import { callChannel } from './price-calls.js';
import type { Stragglers } from './stragglers.js';
import type { RunOfWork, Work, WorkResult } from './work.js';

export interface RuleTargetWorkOptions extends LeasedBatchOptions {
  readonly channel: Channel;
  readonly retry: RetryPolicy;
  readonly passage: Passage;
  readonly size: BatchSize;
  readonly stragglers: Stragglers;
  /** Channels that did not let us in when they were last asked. */
  readonly shut: WeakSet<Channel>;
  /** After so long without an outcome, what is left of the batch counts as hanging. */
  readonly patienceMs: number;
  readonly random: () => number;
}

export class RuleTargetWork implements Work {
  readonly workerId: string;
  readonly channelId: string;
  readonly #options: RuleTargetWorkOptions;
  /** By external id, until the outcome is known. */
  readonly #open: Map<string, ClaimedTarget>;
  /** No further call is to be made. */
  readonly #enough = new AbortController();
  readonly #startedAt = performance.now();
  #batch: LeasedBatch | null = null;
  /** Asks the channel, once, whether it is we who are refused, or an item. */
  #asking: Promise<void> | null = null;
  #refusal: Failure | null = null;
  #firstOutcomeAt: number | null = null;
  #lastOutcomeAt = performance.now();
  #hasLearnt = false;
  #result: WorkResult = 'success';

  constructor(options: RuleTargetWorkOptions) {
    this.#options = options;
    const { targets, workerId, channelId } = options.claim;
    this.workerId = workerId;
    this.channelId = channelId;
    this.#open = new Map(targets.map((target) => [target.externalId, target]));
  }

  get run(): RunOfWork {
    return { kind: 'RULE', ...tellingOf(this.#options.claim) };
  }

  get leases(): number {
    return this.#batch?.size ?? this.#open.size;
  }

  async process(signal: AbortSignal): Promise<WorkResult> {
    const whole = this.#processAll(signal);
    const patience = new AbortController();
    try {
      await Promise.race([whole, this.#onlyStragglersAreLeft(whole, patience.signal)]);
    } finally {
      patience.abort();
      this.#learn();
    }
    return this.#result;
  }

  async #processAll(signal: AbortSignal): Promise<void> {
    const { passage, claim } = this.#options;
    const batch = new LeasedBatch(this.#options, signal, () => passage.keep());
    this.#batch = batch;
    try {
      await this.#call(batch, signal);
    } finally {
      this.#learn();
      await batch.end();
      // What was cut, or read before it is set back, may have been sent.
      const isUnsent = claim.purpose === 'apply' && !signal.aborted;
      await passage.leave(claim.targets.length - (isUnsent ? this.#open.size : 0));
    }
  }

  async #call(batch: LeasedBatch, signal: AbortSignal): Promise<void> {
    const { channel, claim, log, observer, shut } = this.#options;
    const enough = this.#enough.signal;
    const isEnded = (): boolean => signal.aborted || enough.aborted;
    if (shut.has(channel)) await this.#askForEntry(signal);
    try {
      for await (const outcomes of callChannel(channel, claim, { signal, enough }, observer)) {
        this.#note(batch, outcomes);
        if (this.#open.size > 0 && outcomes.some(isUnauthorised)) this.#asking ??= this.#askForEntry(signal);
      }
      await this.#asking;
      if (!isEnded()) this.#giveUpOn(batch, upstream('The channel gave no outcome'));
    } catch (error) {
      if (!isEnded()) {
        log.error({ err: error, ...tellingOf(claim) }, 'the connector failed');
        const message = error instanceof Error ? error.message : String(error);
        // It costs an attempt: what breaks the connector must not come back for ever.
        this.#giveUpOn(batch, upstream(`The connector failed: ${message}`));
      }
    }
    if (this.#refusal) this.#giveUpOn(batch, this.#refusal);
  }

  /** A channel that lets nobody in need not be asked about each item: what is left fails as one. */
  async #askForEntry(signal: AbortSignal): Promise<void> {
    const { channel, shut } = this.#options;
    const failure = await channel.probe(signal).catch(() => null);
    if (failure?.code !== 'AUTH') {
      shut.delete(channel);
      return;
    }
    shut.add(channel);
    this.#refusal = { ...failure, message: `The channel lets us in for nothing: ${failure.message}` };
    this.#enough.abort();
  }

  #note(batch: LeasedBatch, outcomes: readonly ItemOutcome[]): void {
    this.#lastOutcomeAt = performance.now();
    this.#firstOutcomeAt ??= this.#lastOutcomeAt;
    this.#settle(batch, outcomes);
    if (isOverdue(this.#lastOutcomeAt - this.#startedAt, this.#firstOutcomeAt - this.#startedAt))
      this.#enough.abort();
    const throttled = this.#options.passage.note(outcomes, () => this.#enough.abort());
    if (throttled > 0) this.#options.observer.onThrottle?.(throttled);
  }

  #settle(batch: LeasedBatch, outcomes: readonly ItemOutcome[]): void {
    const { retry, random } = this.#options;
    const settled = outcomes.flatMap(({ externalId, outcome }) => {
      const target = this.#open.get(externalId);
      if (!target) return [];
      this.#open.delete(externalId);
      if (outcome.kind !== 'applied') this.#result = 'failure';
      return { targetId: target.id, settlement: settlementOf(outcome, target.attempts, retry, random) };
    });
    batch.settle(settled);
  }

  /** Once: what is left behind by then tells nothing of the rest. */
  #learn(): void {
    if (this.#hasLearnt || this.#firstOutcomeAt === null) return;
    this.#hasLearnt = true;
    const { size, claim } = this.#options;
    const sinceStart = (at: number): number => at - this.#startedAt;
    const items = claim.targets.length - this.#open.size;
    size.learn(items, sinceStart(this.#lastOutcomeAt), sinceStart(this.#firstOutcomeAt));
  }

  #giveUpOn(batch: LeasedBatch, outcome: Failure): void {
    this.#settle(
      batch,
      [...this.#open.keys()].map((externalId) => ({ externalId, outcome })),
    );
  }

  /** Resolves once nothing has come in for a while: somebody else waits for the rest then. */
  #onlyStragglersAreLeft(whole: Promise<unknown>, signal: AbortSignal): Promise<void> {
    const { patienceMs, stragglers } = this.#options;
    return new Promise((resolve) => {
      const look = (): void => {
        const silentMs = performance.now() - this.#lastOutcomeAt;
        if (silentMs < patienceMs) {
          timer = setTimeout(look, patienceMs - silentMs);
          return;
        }
        stragglers.adopt(this, whole);
        resolve();
      };
      let timer = setTimeout(look, patienceMs);
      signal.addEventListener('abort', () => clearTimeout(timer), { once: true });
    });
  }
}

function isUnauthorised({ outcome }: ItemOutcome): boolean {
  return outcome.kind === 'permanent' && outcome.code === 'AUTH';
}

function upstream(message: string): Failure {
  return { kind: 'retryable', code: 'UPSTREAM', message };
}
