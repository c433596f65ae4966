// Runledger itself: a rule run of as many targets, drained by one runner with everything on: guards, ledger,
// counters, bell, heartbeats, maintenance, and a listener. Its channel answers at once.

import { pino } from 'pino';
import type { Channel, ItemOutcome, PriceChange, Readings } from '../../src/connectors/channel.js';
import type { OpenedChannel } from '../../src/connectors/registry.js';
import { DEFAULT_RETRY_POLICY } from '../../src/domain/retry-policy.js';
import type { Viewer } from '../../src/domain/viewer.js';
import { BellListener } from '../../src/events/listener.js';
import { ConnectorCache } from '../../src/runner/connector-cache.js';
import type { SettledBatch } from '../../src/runner/observer.js';
import { RuleTargets } from '../../src/runner/rule-targets.js';
import { Runner } from '../../src/runner/runner.js';
import { registerChannel } from '../../src/store/channel.js';
import { Database } from '../../src/store/db.js';
import { findViolations } from '../../src/store/doctor.js';
import { migrate } from '../../src/store/migrate.js';
import { findRuleRun } from '../../src/store/rule-run-row.js';
import { addRuleTargets, createRuleRun, queueRuleRun } from '../../src/store/rule-run.js';
import { BATCH, Countdown, WORKERS, type Contender } from './contender.js';

const VIEWER: Viewer = { tenantId: 'default', role: 'ADMIN', actor: 'bench', keyId: null };
const PER_CALL = 10_000;
const log = pino({ level: 'error' });

class InstantChannel implements Channel {
  readonly maxBatch = BATCH;

  async *applyPrices(batch: readonly PriceChange[]): AsyncGenerator<readonly ItemOutcome[]> {
    const outcome = { kind: 'applied' } as const;
    yield batch.map(({ externalId }) => ({ externalId, outcome }));
  }

  async fetchPrices(): Promise<Readings> {
    return { prices: new Map(), failures: new Map() };
  }

  async probe(): Promise<null> {
    return null;
  }
}

const POLICY = {
  retry: DEFAULT_RETRY_POLICY,
  rateLimit: null,
  circuit: { toleratedThrottles: 5, openMs: 60_000 },
  concurrency: null,
};

export class RunledgerContender implements Contender {
  readonly name = 'runledger';
  readonly isPeer = false;
  #runId = '';

  static async open(url: string, migrations: string): Promise<RunledgerContender> {
    await migrate(url, migrations);
    const db = new Database({ url });
    const channelId = await registerChannel(db, {
      tenantId: 'default',
      name: 'bench',
      kind: 'bench',
      config: {},
    });
    return new RunledgerContender(db, await BellListener.start({ url, log }), channelId);
  }

  private constructor(
    private readonly db: Database,
    private readonly listener: BellListener,
    private readonly channelId: string,
  ) {}

  async fill(jobs: number): Promise<void> {
    const { db, channelId } = this;
    const run = await createRuleRun(db, VIEWER, {
      projectId: 'bench',
      channelId,
      targets: [],
      metadata: {},
      correlationId: null,
      idempotencyKey: null,
    });
    this.#runId = run.id;
    for (let from = 0; from < jobs; from += PER_CALL) {
      const targets = Array.from({ length: Math.min(PER_CALL, jobs - from) }, (_, index) => ({
        externalId: `item-${from + index}`,
        before: { unit_amount: 1000, currency: 'EUR' },
        after: { unit_amount: 1100, currency: 'EUR' },
      }));
      await addRuleTargets(db, VIEWER, { runId: run.id, targets });
    }
    await queueRuleRun(db, VIEWER, { runId: run.id, idempotencyKey: null });
  }

  async drain(jobs: number): Promise<void> {
    const { db } = this;
    const settled = new Countdown(jobs);
    const observer = { onSettle: ({ events }: SettledBatch) => settled.done(events['succeed'] ?? 0) };
    const channels = new ConnectorCache<OpenedChannel>(async () => ({
      channel: new InstantChannel(),
      policy: POLICY,
    }));
    const kind = new RuleTargets({ db, channels, leaseMs: 120_000, log, observer });
    const runner = new Runner({ db, kinds: [kind], workers: WORKERS, log });
    const forget = this.listener.onBell(() => runner.wake());
    runner.start();
    await settled.all;
    forget();
    await runner.stop();
    const run = await findRuleRun(db, VIEWER, this.#runId);
    if (run?.status !== 'APPLIED' || run.appliedCount !== jobs)
      throw new Error(`the run ended ${run?.status}`);
  }

  /** That nothing was left out for the sake of speed. */
  async check(): Promise<void> {
    const violations = await findViolations(this.db, this.#runId);
    if (violations.length > 0) throw new Error(violations.join('\n'));
  }

  async close(): Promise<void> {
    await this.listener.stop();
    await this.db.close();
  }
}
