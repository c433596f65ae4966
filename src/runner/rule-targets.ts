// Rule targets as a kind of work: a unit is a batch of one run's targets, sent to the run's channel. Owns
// which run is served and how much of it is taken at once.

import type { Channel } from '../connectors/channel.js';
import type { ChannelPolicy } from '../connectors/policy.js';
import type { OpenedChannel } from '../connectors/registry.js';
import { DEFAULT_RETRY_POLICY } from '../domain/retry-policy.js';
import { AppError } from '../errors.js';
import { freeSlots } from '../store/channel-gate.js';
import { claimTargets, findClaimableRun, nextClaimDelayMs, type ClaimableRun } from '../store/claim.js';
import type { Database } from '../store/db.js';
import { recoverLeases } from '../store/recover.js';
import { MissingKey } from '../store/secret-box.js';
import { AbsentKeys } from './absent-keys.js';
import { BatchSize } from './batch-size.js';
import { passGate } from './channel-gate.js';
import type { ConnectorCache } from './connector-cache.js';
import type { Log } from './log.js';
import type { RunnerObserver } from './observer.js';
import { RuleTargetWork, type RuleTargetWorkOptions } from './rule-target-work.js';
import { FULL_MS, PATIENCE_MS, Stragglers } from './stragglers.js';
import { UnusableChannel } from './unusable-channel.js';
import type { Work, WorkKind } from './work.js';

export interface RuleTargetOptions {
  readonly db: Database;
  readonly channels: ConnectorCache<OpenedChannel>;
  readonly leaseMs: number;
  readonly log: Log;
  readonly observer?: RunnerObserver;
  /** After so long without an outcome, what is left of a batch counts as hanging. */
  readonly patienceMs?: number;
  /** Uniform in [0, 1): spreads the retries. */
  readonly random?: () => number;
}

/** A channel on the other side of its gate. */
type Entered = Pick<RuleTargetWorkOptions, 'channel' | 'retry' | 'passage' | 'size'>;

export class RuleTargets implements WorkKind {
  readonly name = 'rule_target';
  readonly #options: RuleTargetOptions;
  readonly #stragglers: Stragglers;
  readonly #absentKeys: AbsentKeys;
  readonly #shut = new WeakSet<Channel>();
  /** How much each channel gets done at a time; forgotten with it. */
  readonly #sizes = new WeakMap<Channel, BatchSize>();

  constructor(options: RuleTargetOptions) {
    this.#options = options;
    this.#stragglers = new Stragglers(options.log);
    this.#absentKeys = new AbsentKeys(options.log);
  }

  async recover(deadWorkerIds: readonly string[]): Promise<number> {
    const { db, observer } = this.#options;
    if (deadWorkerIds.length > 0) await freeSlots(db, deadWorkerIds);
    return recoverLeases(db, deadWorkerIds, (run) => observer?.onRecover?.({ kind: this.name, ...run }));
  }

  async nextDueMs(): Promise<number | null> {
    const full = this.#stragglers.fullChannels();
    const ms = await nextClaimDelayMs(this.#options.db, [...full, ...this.#absentKeys.channels()]);
    return full.length === 0 ? ms : Math.min(ms ?? Infinity, FULL_MS);
  }

  async claim(workerId: string): Promise<Work | null> {
    const { db } = this.#options;
    // For this process only: another may have room, or the key, so the run's row says nothing of it.
    const passedOver = [...this.#stragglers.fullChannels(), ...this.#absentKeys.channels()];
    for (;;) {
      const found = await findClaimableRun(db, passedOver);
      if (!found) return null;
      const entered = await this.#enter(found, workerId);
      if (entered) return this.#claimFrom(found, workerId, entered);
      // Due by the run's row, which does not know all that the gate asks: that must not hold up other channels.
      passedOver.push(found.channelId);
    }
  }

  /** Null when nothing of the channel may go now. */
  async #enter(found: ClaimableRun, workerId: string): Promise<Entered | null> {
    const { db, leaseMs } = this.#options;
    const { channelId, isGuarded, throttles, isRollingBack } = found;
    const opened = await this.#absentKeys.open(channelId, () => this.#open(found));
    if (!opened) return null;
    const { channel, policy } = opened;
    const size = this.#sizeOf(channel);
    // Before a price is set back it is read.
    const callsPerItem = isRollingBack ? 2 : 1;
    const gate = { db, channelId, channel, policy, workerId, leaseMs, isGuarded, throttles, callsPerItem };
    const passage = await passGate(gate, size.items);
    return passage && { channel, retry: policy.retry, passage, size };
  }

  async #claimFrom({ runId }: ClaimableRun, workerId: string, entered: Entered): Promise<Work | null> {
    const { db, leaseMs } = this.#options;
    const { passage } = entered;
    const claim = await claimTargets(db, { runId, workerId, limit: passage.items, leaseMs });
    if (claim) return this.#makeWork({ ...entered, claim });
    await passage.leave(0);
    return null;
  }

  #makeWork(parts: Entered & Pick<RuleTargetWorkOptions, 'claim'>): Work {
    const { db, leaseMs, log, observer = {}, random = Math.random, patienceMs = PATIENCE_MS } = this.#options;
    const own = { stragglers: this.#stragglers, shut: this.#shut };
    return new RuleTargetWork({ ...parts, ...own, db, leaseMs, log, observer, random, patienceMs });
  }

  leasesOf(workerId: string): number {
    return this.#stragglers.leasesOf(workerId);
  }

  drain(): Promise<void> {
    return this.#stragglers.end();
  }

  /** A channel that cannot be used fails its targets for good, with the reason, rather than the worker. */
  async #open({ channelId, channelVersion }: ClaimableRun): Promise<OpenedChannel> {
    try {
      return await this.#options.channels.get(channelId, channelVersion);
    } catch (error) {
      const isUnusable =
        error instanceof AppError && error.code === 'INVALID_INPUT' && !(error instanceof MissingKey);
      if (!isUnusable) throw error;
      return { channel: new UnusableChannel(error.message), policy: UNLIMITED };
    }
  }

  #sizeOf(channel: Channel): BatchSize {
    const known = this.#sizes.get(channel);
    if (known) return known;
    const size = new BatchSize(channel.maxBatch);
    this.#sizes.set(channel, size);
    return size;
  }
}

const UNLIMITED: ChannelPolicy = {
  retry: DEFAULT_RETRY_POLICY,
  rateLimit: null,
  circuit: { toleratedThrottles: 2 ** 31 - 1, openMs: 0 },
  concurrency: null,
};
