// Rule targets as a kind of work: a unit is a batch of one run's targets, sent to the run's channel. Owns
// which run is served and how much of it is taken at once.

import type { OpenedChannel } from '../connectors/registry.js';
import type { StoredChannel } from '../domain/channel.js';
import { DEFAULT_RETRY_POLICY } from '../domain/retry-policy.js';
import { AppError } from '../errors.js';
import { claimTargets, findClaimableRun, nextClaimDelayMs, type ClaimableRun } from '../store/claim.js';
import type { Database } from '../store/db.js';
import { recoverLeases } from '../store/recover.js';
import { readChannelConfig } from '../store/channel-config.js';
import type { SecretBox } from '../store/secret-box.js';
import { ConnectorCache } from './connector-cache.js';
import type { Log } from './log.js';
import type { RunnerObserver } from './observer.js';
import { RuleTargetWork } from './rule-target-work.js';
import { UnusableChannel } from './unusable-channel.js';
import type { Work, WorkKind } from './work.js';

/** Throws INVALID_INPUT when the configuration cannot be used. */
export type OpenChannel = (stored: StoredChannel) => OpenedChannel;

export interface RuleTargetOptions {
  readonly db: Database;
  /** Opens channels' credentials. */
  readonly secrets: SecretBox;
  readonly openChannel: OpenChannel;
  readonly leaseMs: number;
  readonly log: Log;
  readonly observer?: RunnerObserver;
  /** Uniform in [0, 1): spreads the retries. */
  readonly random?: () => number;
}

export class RuleTargets implements WorkKind {
  readonly name = 'rule_target';
  readonly #options: RuleTargetOptions;
  readonly #channels: ConnectorCache<OpenedChannel>;

  constructor(options: RuleTargetOptions) {
    this.#options = options;
    const { db, secrets, openChannel } = options;
    this.#channels = new ConnectorCache(async (id) => openChannel(await readChannelConfig(db, secrets, id)));
  }

  recover(deadWorkerIds: readonly string[]): Promise<number> {
    return recoverLeases(this.#options.db, deadWorkerIds);
  }

  nextDueMs(): Promise<number | null> {
    return nextClaimDelayMs(this.#options.db);
  }

  async claim(workerId: string): Promise<Work | null> {
    const { db, leaseMs, log, observer = {}, random = Math.random } = this.#options;
    const found = await findClaimableRun(db);
    if (!found) return null;
    const { channel, policy } = await this.#open(found);
    const limit = channel.maxBatch;
    const claim = await claimTargets(db, { runId: found.runId, workerId, limit, leaseMs });
    const { retry } = policy;
    return claim && new RuleTargetWork({ db, claim, channel, retry, leaseMs, log, observer, random });
  }

  /** A channel that cannot be used fails its targets for good, with the reason, rather than the worker. */
  async #open({
    channelId,
    channelVersion,
  }: ClaimableRun): Promise<
    Pick<OpenedChannel, 'channel'> & { readonly policy: Pick<OpenedChannel['policy'], 'retry'> }
  > {
    try {
      return await this.#channels.get(channelId, channelVersion);
    } catch (error) {
      if (!(error instanceof AppError && error.code === 'INVALID_INPUT')) throw error;
      return { channel: new UnusableChannel(error.message), policy: { retry: DEFAULT_RETRY_POLICY } };
    }
  }
}
