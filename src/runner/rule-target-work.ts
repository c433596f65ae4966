// One claimed batch on its way through the channel. Outcomes come in a few at a time and are settled while
// the rest is under way. A circuit that opens ends the calls that are not made yet, and a few calls that hang
// are left behind, so that neither holds up the loop.

import type { Channel, ItemOutcome } from '../connectors/channel.js';
import type { RetryPolicy } from '../domain/retry-policy.js';
import { settlementOf } from '../domain/rule-target.js';
import type { ClaimedTarget } from '../store/claim.js';
import type { BatchSize } from './batch-size.js';
import type { Passage } from './channel-gate.js';
import { LeasedBatch, type LeasedBatchOptions } from './leased-batch.js';
import { callChannel } from './price-calls.js';
import type { Stragglers } from './stragglers.js';
import type { Work, WorkResult } from './work.js';

export interface RuleTargetWorkOptions extends LeasedBatchOptions {
  readonly channel: Channel;
  readonly retry: RetryPolicy;
  readonly passage: Passage;
  readonly size: BatchSize;
  readonly stragglers: Stragglers;
  /** After so long without an outcome, what is left of the batch counts as hanging. */
  readonly patienceMs: number;
  readonly random: () => number;
}

export class RuleTargetWork implements Work {
  readonly workerId: string;
  readonly #options: RuleTargetWorkOptions;
  /** By external id, until the outcome is known. */
  readonly #open: Map<string, ClaimedTarget>;
  readonly #calls = new AbortController();
  readonly #startedAt = performance.now();
  #batch: LeasedBatch | null = null;
  #lastOutcomeAt = performance.now();
  #result: WorkResult = 'success';

  constructor(options: RuleTargetWorkOptions) {
    this.#options = options;
    const { targets, workerId } = options.claim;
    this.workerId = workerId;
    this.#open = new Map(targets.map((target) => [target.externalId, target]));
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
      const { size, claim } = this.#options;
      size.learn(claim.targets.length - this.#open.size, this.#lastOutcomeAt - this.#startedAt);
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
      await batch.end();
      await passage.leave(claim.targets.length);
    }
  }

  async #call(batch: LeasedBatch, signal: AbortSignal): Promise<void> {
    const { channel, claim, log } = this.#options;
    const calls = AbortSignal.any([signal, this.#calls.signal]);
    try {
      for await (const outcomes of callChannel(channel, claim, calls)) this.#note(batch, outcomes);
      if (!calls.aborted) this.#giveUpOn(batch, 'The channel gave no outcome');
    } catch (error) {
      if (calls.aborted) return;
      log.error({ err: error, runId: claim.runId }, 'the connector failed');
      // It costs an attempt: what breaks the connector must not come back for ever.
      this.#giveUpOn(
        batch,
        `The connector failed: ${error instanceof Error ? error.message : String(error)}`,
      );
    }
  }

  #note(batch: LeasedBatch, outcomes: readonly ItemOutcome[]): void {
    this.#lastOutcomeAt = performance.now();
    this.#settle(batch, outcomes);
    if (outcomes.some(isThrottled)) this.#options.observer.onThrottle?.();
    this.#options.passage.note(outcomes, () => this.#calls.abort());
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

  #giveUpOn(batch: LeasedBatch, message: string): void {
    const outcome = { kind: 'retryable', code: 'UPSTREAM', message } as const;
    this.#settle(
      batch,
      [...this.#open.keys()].map((externalId) => ({ externalId, outcome })),
    );
  }

  /** Resolves once nothing has come in for a while and somebody else waits for the rest. */
  #onlyStragglersAreLeft(whole: Promise<unknown>, signal: AbortSignal): Promise<void> {
    const { patienceMs, stragglers } = this.#options;
    return new Promise((resolve) => {
      const look = (): void => {
        const silentMs = performance.now() - this.#lastOutcomeAt;
        if (silentMs >= patienceMs && stragglers.adopt(this, whole)) resolve();
        else timer = setTimeout(look, Math.max(patienceMs - silentMs, patienceMs / 5));
      };
      let timer = setTimeout(look, patienceMs);
      signal.addEventListener('abort', () => clearTimeout(timer), { once: true });
    });
  }
}

function isThrottled({ outcome }: ItemOutcome): boolean {
  return outcome.kind !== 'applied' && outcome.code === 'RATE_LIMITED';
}
