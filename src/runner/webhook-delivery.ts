// Sends webhooks, in every process that runs work. A bell says that a run has news; what is sent is read from the
// ledger after the cursor. One request at a time for each run of an endpoint, several runs of an endpoint side by
// side, and no endpoint waits for another: each has a few requests at once, and those that fail have a share of
// their own. What is not sent before a stop is handed back.

import { setMaxListeners } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import type { RunHead } from '../store/run.js';
import type { Database } from '../store/db.js';
import { claimRuns, hasDueRuns, listWebhookTenants, noticeNews } from '../store/webhook-cursor.js';
import { claimPings } from '../store/webhook-ping.js';
import { Doorbell } from './doorbell.js';
import type { Log } from './log.js';
import type { WebhookSender } from './webhook-sender.js';

export interface WebhookTiming {
  /** Between two looks without any bell: what waits for its next try is found by them. */
  readonly pollMs: number;
  /** Bells of this long are answered together. */
  readonly gatherMs: number;
  /** How long requests under way may go on at a stop; then they are cut, and handed back. */
  readonly graceMs: number;
}

export interface WebhookDeliveryOptions {
  readonly db: Database;
  readonly sender: WebhookSender;
  readonly log: Log;
  readonly timing?: Partial<WebhookTiming>;
}

const DEFAULT_TIMING: WebhookTiming = { pollMs: 1_000, gatherMs: 50, graceMs: 3_000 };
/** Runs of one endpoint that are sent at once. */
const PER_ENDPOINT = 4;
/** Requests at once: to endpoints that are well, and to those whose last try failed. */
const MOST = { sound: 100, failing: 50 } as const;
const MOST_PINGS = 10;

type Share = keyof typeof MOST;

export class WebhookDelivery {
  readonly #timing: WebhookTiming;
  readonly #stopping = new AbortController();
  readonly #cutting = new AbortController();
  readonly #doorbell = new Doorbell();
  readonly #underWay = new Set<Promise<void>>();
  readonly #counts: Record<Share, number> = { sound: 0, failing: 0 };
  /** Requests under way, by endpoint. */
  readonly #perEndpoint = new Map<string, number>();
  /** Tenants that have endpoints, as far as is known, and those that a bell has told of since it was asked. */
  #tenants = new Set<string>();
  #newTenants = new Set<string>();
  #heard = new Set<string>();
  /** Bells may have been lost: every run is looked at. */
  #isAllDue = true;
  #refreshAt = 0;
  #gathering: NodeJS.Timeout | null = null;
  #running: Promise<void> | null = null;

  constructor(private readonly options: WebhookDeliveryOptions) {
    this.#timing = { ...DEFAULT_TIMING, ...options.timing };
    // One for each request under way.
    setMaxListeners(0, this.#cutting.signal);
  }

  start(): void {
    this.#running ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    if (this.#gathering) clearTimeout(this.#gathering);
    await this.#running;
    const grace = setTimeout(() => this.#cutting.abort(), this.#timing.graceMs);
    await Promise.all(this.#underWay);
    clearTimeout(grace);
  }

  /** A run has news. */
  hear({ id, tenantId }: Pick<RunHead, 'id' | 'tenantId'>): void {
    if (!this.#tenants.has(tenantId) && !this.#newTenants.has(tenantId)) return;
    this.#heard.add(id);
    this.#gathering ??= setTimeout(() => {
      this.#gathering = null;
      this.#doorbell.ring();
    }, this.#timing.gatherMs);
  }

  /** A tenant has an endpoint that is new, changed, or to be pinged. */
  hearEndpoint(tenantId: string): void {
    this.#newTenants.add(tenantId);
    this.#refreshAt = 0;
    this.#doorbell.ring();
  }

  /** Bells may have been lost: what they would have told is looked up. */
  lookAgain(): void {
    this.#isAllDue = true;
    this.#refreshAt = 0;
    this.#doorbell.ring();
  }

  /** Sends all that is due now, until nothing is: for tests and tools, instead of `start`. */
  async runOnce(): Promise<void> {
    do {
      this.#isAllDue = true;
      this.#refreshAt = 0;
      await this.#look();
      if (this.#underWay.size > 0) await Promise.race(this.#underWay);
    } while (this.#underWay.size > 0 || (await hasDueRuns(this.options.db)));
  }

  async #run(): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      try {
        await this.#look();
        await this.#doorbell.wait(this.#timing.pollMs, signal);
      } catch (error) {
        this.options.log.warn({ err: error }, 'webhooks could not be looked up');
        await delay(this.#timing.pollMs, undefined, { signal }).catch(() => {});
      }
    }
  }

  /** Begins what is due. What waits for a time to come is looked at less often than what bells tell of. */
  async #look(): Promise<void> {
    const isFull = performance.now() >= this.#refreshAt;
    if (isFull) await this.#refresh();
    if (this.#tenants.size === 0) return;
    await this.#noticeNews();
    await Promise.all([
      this.#claim('sound'),
      ...(isFull ? [this.#claim('failing'), this.#claimPings()] : []),
    ]);
  }

  async #refresh(): Promise<void> {
    this.#refreshAt = performance.now() + this.#timing.pollMs;
    const heardOf = this.#newTenants;
    this.#newTenants = new Set();
    try {
      this.#tenants = new Set([...(await listWebhookTenants(this.options.db)), ...this.#newTenants]);
    } catch (error) {
      for (const tenantId of heardOf) this.#newTenants.add(tenantId);
      throw error;
    }
  }

  async #noticeNews(): Promise<void> {
    const isAllDue = this.#isAllDue;
    if (!isAllDue && this.#heard.size === 0) return;
    const heard = this.#heard;
    this.#heard = new Set();
    this.#isAllDue = false;
    try {
      await noticeNews(this.options.db, isAllDue ? null : [...heard]);
    } catch (error) {
      this.#isAllDue = true;
      throw error;
    }
  }

  async #claim(share: Share): Promise<void> {
    const { db, sender } = this.options;
    const limit = MOST[share] - this.#counts[share];
    if (limit <= 0 || this.#stopping.signal.aborted) return;
    const claimed = await claimRuns(db, {
      failing: share === 'failing',
      limit,
      perEndpoint: PER_ENDPOINT,
      underWay: this.#perEndpoint,
    });
    for (const run of claimed) {
      this.#begin(share, run.endpoint.id, () => sender.send(run, this.#cutting.signal));
    }
  }

  async #claimPings(): Promise<void> {
    const { db, sender } = this.options;
    const limit = Math.min(MOST_PINGS, MOST.failing - this.#counts.failing);
    if (limit <= 0 || this.#stopping.signal.aborted) return;
    const claimed = await claimPings(db, limit);
    for (const endpoint of claimed) {
      this.#begin('failing', null, () => sender.ping(endpoint, this.#cutting.signal));
    }
  }

  #begin(share: Share, endpointId: string | null, work: () => Promise<void>): void {
    this.#count(share, endpointId, 1);
    const delivery = work()
      // Its lease ends, and it is tried again.
      .catch((error: unknown) => this.options.log.warn({ err: error }, 'a webhook could not be settled'))
      .finally(() => {
        this.#count(share, endpointId, -1);
        this.#underWay.delete(delivery);
        this.#doorbell.ring();
      });
    this.#underWay.add(delivery);
  }

  #count(share: Share, endpointId: string | null, by: 1 | -1): void {
    this.#counts[share] += by;
    if (endpointId === null) return;
    const count = (this.#perEndpoint.get(endpointId) ?? 0) + by;
    if (count > 0) this.#perEndpoint.set(endpointId, count);
    else this.#perEndpoint.delete(endpointId);
  }
}
