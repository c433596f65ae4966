// The gate before a channel, as the runner passes it: a batch goes in with as many items as the channel's row
// allows now, tells the answers it gets, and leaves. Channels without any limit, and whose circuit is closed,
// are passed without a write.

import { randomUUID } from 'node:crypto';
import type { Channel, ItemOutcome } from '../connectors/channel.js';
import type { ChannelPolicy } from '../connectors/policy.js';
import { admitBatch, countStreaks, PROBE_ITEMS, type Admission } from '../domain/channel-gate.js';
import { enterChannel, keepSlot, leaveChannel, noteAnswers } from '../store/channel-gate.js';
import type { Database } from '../store/db.js';

export interface GateOptions {
  readonly db: Database;
  readonly channelId: string;
  readonly channel: Channel;
  readonly policy: ChannelPolicy;
  readonly workerId: string;
  readonly leaseMs: number;
  /** Whether the row has anything to say: a budget, a circuit that is not closed, throttled answers. */
  readonly isGuarded: boolean;
  /** Throttled answers in a row, as of the claim. */
  readonly throttles: number;
  /** What each item takes of a rate limit: a call, unless it is more. */
  readonly callsPerItem?: number;
}

/** Passes the gate with a batch of up to `wanted` items; null when none may go now. */
export async function passGate(options: GateOptions, wanted: number): Promise<Passage | null> {
  const { db, channelId, channel, policy, workerId, leaseMs, isGuarded } = options;
  const { rateLimit, concurrency } = policy;
  const { callsPerItem = 1 } = options;
  const slot = `${workerId}#${randomUUID()}`;
  if (!isGuarded && rateLimit === null && concurrency === null) {
    // A channel that charges, and has not said what there is to spend, gets a small batch to say so.
    const isUnknown = channel.metering?.budget === null;
    const items = isUnknown ? Math.min(wanted, PROBE_ITEMS) : wanted;
    return new Passage(options, slot, { items, cost: 0, isProbe: false });
  }
  const bucket = rateLimit && { capacity: rateLimit.burst, restorePerSecond: rateLimit.perSecond };
  const costOf = rateLimit
    ? (items: number) => items * callsPerItem
    : (channel.metering?.costOf ?? (() => 0));
  const request = { channelId, slot, leaseMs, bucket, limitsBatches: concurrency !== null };
  const admission = await enterChannel(db, request, (state) =>
    admitBatch(state, { concurrency, costOf }, wanted),
  );
  return admission && new Passage(options, slot, admission);
}

/** One batch on the other side of the gate. */
export class Passage {
  readonly #options: GateOptions;
  readonly #slot: string;
  readonly #admission: Admission;
  /** Throttled answers in a row, as far as this batch knows. */
  #throttles: number;
  /** Whether the row may count throttled answers that an answer of another kind ends. */
  #isTroubled: boolean;
  #isAnswered = false;
  #noted: Promise<unknown> = Promise.resolve();

  constructor(options: GateOptions, slot: string, admission: Admission) {
    this.#options = options;
    this.#slot = slot;
    this.#admission = admission;
    this.#throttles = options.throttles;
    this.#isTroubled = options.isGuarded;
  }

  /** The most items that the batch may have. */
  get items(): number {
    return this.#admission.items;
  }

  /**
   * Takes note of answers; answers how many of them were throttled. `stopCalls` is called when the circuit opens:
   * at once by this batch's own count, since the next calls would not wait for the database, or when the row says so.
   */
  note(outcomes: readonly ItemOutcome[], stopCalls: () => void): number {
    const answers = [...new Set(outcomes.map(({ outcome }) => outcome))];
    const isThrottled = answers.map((answer) => answer.kind !== 'applied' && answer.code === 'RATE_LIMITED');
    if (isThrottled.length === 0) return 0;
    this.#isAnswered = true;
    const isCalm = !isThrottled.includes(true);
    if (isCalm && !this.#isTroubled) return 0;
    this.#isTroubled = !isCalm;
    const { db, channelId, policy } = this.#options;
    const streaks = countStreaks(isThrottled);
    if (Math.max(this.#throttles + streaks.leading, streaks.longest) > policy.circuit.toleratedThrottles)
      stopCalls();
    this.#throttles = streaks.sawOther ? streaks.trailing : this.#throttles + streaks.trailing;
    this.#noted = this.#noted.then(async () => {
      const circuit = await noteAnswers(db, channelId, streaks, policy.circuit);
      if (circuit === 'OPEN') stopCalls();
    });
    this.#noted.catch(() => {});
    return streaks.throttled;
  }

  /** The batch is still under way. */
  async keep(): Promise<void> {
    const { db, channelId, policy, leaseMs } = this.#options;
    if (policy.concurrency !== null) await keepSlot(db, channelId, this.#slot, leaseMs);
  }

  /** The batch is over; it had `items` of those that it was let through with. */
  async leave(items: number): Promise<void> {
    const { db, channelId, channel, policy, callsPerItem = 1 } = this.#options;
    await this.#noted;
    const reported = policy.rateLimit === null ? (channel.metering?.budget ?? null) : null;
    const refund = policy.rateLimit === null ? 0 : Math.max(0, this.#admission.cost - items * callsPerItem);
    const isUnansweredProbe = this.#admission.isProbe && !this.#isAnswered;
    if (reported === null && refund === 0 && policy.concurrency === null && !isUnansweredProbe) return;
    await leaveChannel(db, { channelId, slot: this.#slot, refund, reported, isUnansweredProbe });
  }
}
