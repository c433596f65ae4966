// Composition: which parts a process has, in what order they start, and the reverse order in which they
// stop. Nothing else constructs parts and passes them to each other. Called by main and by tests, which
// start it on port 0.

import type { Logger } from 'pino';
import { Authenticator } from './app/authenticate.js';
import { ChannelAccess } from './app/channels.js';
import { operationsJobs } from './app/operations.js';
import { seedDemo } from './app/demo.js';
import { opsWebhook } from './app/ops-webhook.js';
import { LocalSandbox } from './app/sandbox.js';
import { openSecretBox } from './app/secret-key.js';
import { SourceAccess } from './app/sources.js';
import { Tracing } from './app/tracing.js';
import { startWebhooks } from './app/webhooks.js';
import { isLoopbackHost, type Config } from './config.js';
import { ALERT_SINK_KINDS } from './connectors/alert-sink/registry.js';
import { WEBHOOK_KINDS } from './connectors/webhook-endpoint.js';
import { AppError } from './errors.js';
import { AlertFeed } from './events/alert-feed.js';
import { RunFeed } from './events/feed.js';
import { BellListener } from './events/listener.js';
import { keepEmbeddedPostgres } from './postgres/kept-postgres.js';
import { createContext } from './resolvers/context.js';
import { buildGraphqlSchema } from './resolvers/schema.js';
import { autoRevertJob } from './runner/auto-revert.js';
import { LogObserver } from './runner/log-observer.js';
import { tellBoth } from './runner/observer.js';
import { reconciliationScheduleJob } from './runner/reconciliation-schedule.js';
import { Reconciliations } from './runner/reconciliations.js';
import { RuleTargets } from './runner/rule-targets.js';
import { Runner } from './runner/runner.js';
import type { MaintenanceJob } from './runner/maintenance.js';
import { staleOpsRunJob } from './runner/stale-ops-runs.js';
import { deadLetterExports } from './server/dead-letter-export.js';
import type { Readiness } from './server/health.js';
import { GraphqlServer } from './server/http.js';
import { Metrics } from './server/metrics.js';
import { hasUsableKey, installBootstrapKey } from './store/api-key.js';
import { Database } from './store/db.js';
import { readFacts } from './store/facts.js';
import { MIGRATIONS, migrate } from './store/migrate.js';
import { resealSettings } from './store/sealed-settings.js';
import type { SecretBox } from './store/secret-box.js';

/** How long a caller waits for one answer of the database; what is fed live is asked for again after that. */
const LONGEST_ANSWER_MS = 30_000;

type Stop = () => Promise<void>;

/** What the server and the runner of a process have in common. */
interface Parts {
  readonly db: Database;
  readonly listener: BellListener;
  readonly channels: ChannelAccess;
  readonly sources: SourceAccess;
  readonly metrics: Metrics;
  readonly tracing: Tracing;
}

export class App {
  readonly #config: Config;
  readonly #log: Logger;
  /** How to undo each step of the start, oldest first. */
  readonly #stops: Stop[] = [];
  #server: GraphqlServer | null = null;
  #runner: Runner | null = null;
  #stopping: Promise<void> | null = null;
  #fail: (reason: Error) => void = () => {};
  /** Settles with the reason if a part that the app cannot do without ends by itself. */
  readonly failed = new Promise<Error>((resolve) => (this.#fail = resolve));

  /** Starts everything, or throws after undoing what had been started. */
  static async start(config: Config, log: Logger): Promise<App> {
    const app = new App(config, log);
    try {
      await app.#start();
      return app;
    } catch (error) {
      await app.stop();
      throw error;
    }
  }

  private constructor(config: Config, log: Logger) {
    this.#config = config;
    this.#log = log;
  }

  /** The GraphQL endpoint; null in a process that only runs work. */
  get url(): string | null {
    return this.#server && this.#config.role !== 'runner' ? this.#server.url : null;
  }

  /** Stops claims and hands leases back, drains sockets and requests, then closes what they used. */
  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  async #stop(): Promise<void> {
    for (const stop of this.#stops.toReversed()) {
      try {
        await stop();
      } catch (err) {
        this.#log.error({ err }, 'a part did not stop in order');
      }
    }
  }

  async #start(): Promise<void> {
    const tracing = await Tracing.start(this.#config.tracing);
    this.#stops.push(() => tracing.stop());
    const url = await this.#openDatabaseServer();
    const applied = await migrate(url, MIGRATIONS);
    if (applied.length > 0) this.#log.info({ migrations: applied }, 'migrated the database');
    const db = this.#openPool(url);
    await this.#provideKeys(db);
    const secrets = await this.#openSecretBox(db);
    const sandbox = await this.#startSandbox(db);
    const listener = await this.#startListener(url);
    const callersDb = db.answeringWithin(LONGEST_ANSWER_MS);
    const metrics = this.#measure(callersDb, listener);
    const channels = new ChannelAccess(this.#config, db, secrets, sandbox);
    const sources = new SourceAccess(this.#config, secrets, sandbox);
    const parts = { db, listener, channels, sources, metrics, tracing };
    await this.#startServer({ ...parts, db: callersDb });
    if (this.#config.role !== 'api') this.#startRunner(parts);
  }

  async #openDatabaseServer(): Promise<string> {
    const { database } = this.#config;
    if (database.kind === 'external') return database.url;
    const postgres = await keepEmbeddedPostgres({ dataDir: database.dataDir, log: this.#log });
    this.#stops.push(() => postgres.stop());
    void postgres.exited.then(({ message }) => {
      if (!this.#stopping) this.#fail(new Error(`The embedded PostgreSQL does not stay up: ${message}`));
    });
    return postgres.url;
  }

  #openPool(url: string): Database {
    const db = new Database({
      url,
      // Not the error itself: the driver hangs the whole connection on it.
      onIdleError: ({ message }) => this.#log.warn({ reason: message }, 'a database connection was lost'),
    });
    this.#stops.push(() => db.close());
    return db;
  }

  async #provideKeys(db: Database): Promise<void> {
    const { apiKey, http } = this.#config;
    if (apiKey !== null) await installBootstrapKey(db, apiKey);
    if (isLoopbackHost(http.host) || (await hasUsableKey(db))) return;
    throw new AppError(
      'INVALID_INPUT',
      `HOST: ${JSON.stringify(http.host)} can be reached from other machines and there is no API key: ` +
        'set RUNLEDGER_API_KEY, or HOST to 127.0.0.1',
    );
  }

  async #openSecretBox(db: Database): Promise<SecretBox> {
    const secrets = await openSecretBox(this.#config);
    const count = await resealSettings(db, secrets);
    if (count > 0) this.#log.info({ count }, 'encrypted credentials with the new key');
    return secrets;
  }

  async #startSandbox(db: Database): Promise<LocalSandbox | null> {
    const { sandbox, database } = this.#config;
    if (!sandbox.enabled) return null;
    const opened = await LocalSandbox.open(db, this.#config);
    this.#stops.push(() => opened.stop());
    if (database.kind === 'embedded') await seedDemo(db);
    return opened;
  }

  async #startListener(url: string): Promise<BellListener> {
    const listener = await BellListener.start({ url, log: this.#log });
    this.#stops.push(() => listener.stop());
    return listener;
  }

  #measure(db: Database, listener: BellListener): Metrics {
    const metrics = new Metrics({
      readFacts: () => readFacts(db, { stuckMs: this.#config.stuckMs }),
      readPool: () => db.poolUse,
      isListening: () => listener.isHealthy,
      readLeases: () => this.#runner?.leases ?? [],
      log: this.#log,
    });
    listener.onLag((ms) => metrics.noteLag(ms));
    return metrics;
  }

  async #startServer({ db, listener, channels, sources, metrics }: Parts): Promise<void> {
    const { role, http, stuckMs, progressIntervalMs } = this.#config;
    const { secrets, kinds: channelKinds } = channels;
    const feed = new RunFeed(db, listener, { log: this.#log, progressIntervalMs });
    const alertFeed = new AlertFeed(db, listener, { log: this.#log });
    this.#stops.push(async () => {
      feed.stop();
      alertFeed.stop();
    });
    const alertSinkKinds = ALERT_SINK_KINDS;
    const sourceKinds = sources;
    const operationLog = this.#log.isLevelEnabled('debug') ? this.#log : null;
    const webhookKinds = WEBHOOK_KINDS;
    const shown = { feed, alertFeed, channelKinds, alertSinkKinds, sourceKinds, webhookKinds };
    const services = { db, secrets, stuckMs, operationLog, ...shown };
    const authenticator = new Authenticator(db, this.#config);
    this.#server = await GraphqlServer.start({
      schema: buildGraphqlSchema(),
      serveGraphql: role !== 'runner',
      authenticate: (credentials) => authenticator.authenticate(credentials),
      createContext: (viewer, correlationId) =>
        createContext({ ...services, viewer, correlationId: correlationId ?? null }),
      webhook: opsWebhook(db, this.#config.webhookSecret),
      isReady: () => checkReadiness(db, listener),
      downloads: deadLetterExports(db),
      metrics,
      log: this.#log,
      host: http.host,
      port: http.port,
    });
    const server = this.#server;
    listener.onKeyChange((keyId) => void server.keyChanged(keyId));
    // A revocation may have been among the bells that were missed.
    listener.onReconnect(() => void server.keyChanged(null));
    this.#stops.push(() => server.stop());
  }

  /** What some replica does by the clock. */
  #jobs(db: Database, secrets: SecretBox): MaintenanceJob[] {
    const { staleClaimMs, staleRunMs } = this.#config;
    return [
      autoRevertJob(db),
      reconciliationScheduleJob(db),
      staleOpsRunJob(db, { claimMs: staleClaimMs, silenceMs: staleRunMs }, this.#log),
      ...operationsJobs(db, secrets, this.#log),
    ];
  }

  #startRunner({ db, listener, channels, sources, metrics, tracing }: Parts): void {
    const { leaseMs, workers } = this.#config;
    const log = this.#log;
    const isTold = log.isLevelEnabled('debug');
    const observer = isTold ? tellBoth(metrics.runner, new LogObserver(log)) : metrics.runner;
    const channelWork = { db, channels: channels.opened, leaseMs, log, observer };
    const kinds = tracing.showWork(db, [
      new RuleTargets(channelWork),
      new Reconciliations(channelWork),
      ...sources.work(db, leaseMs, log, observer),
    ]);
    const jobs = this.#jobs(db, channels.secrets);
    const runner = new Runner({ db, kinds, jobs, workers, log, observer });
    const webhooks = startWebhooks({ db, listener, secrets: channels.secrets, log, observer });
    this.#stops.push(() => webhooks.stop());
    const forget = listener.onBell(() => runner.wake());
    runner.start();
    this.#runner = runner;
    this.#stops.push(async () => {
      forget();
      await runner.stop();
    });
  }
}

async function checkReadiness(db: Database, listener: BellListener): Promise<Readiness> {
  const database = await db.ping().then(
    () => 'ok',
    () => 'cannot be reached',
  );
  const checks = { database, listener: listener.isHealthy ? 'ok' : 'not connected' };
  return { ready: Object.values(checks).every((state) => state === 'ok'), checks };
}
