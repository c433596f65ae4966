// The metrics of one process, in Prometheus' format. Counters and histograms tell what this process did, so a
// dashboard sums them over replicas; the database's gauges are facts of the shared database (max over
// replicas). Labels are closed sets: no ids, no tenants, no names that people choose. Called by http.

import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { Logger } from 'pino';
import type { PoolUse } from '../store/db.js';
import type { Facts } from '../store/facts.js';
import { DatabaseGauges } from './database-gauges.js';
import { RunnerMetrics } from './runner-metrics.js';

export interface SocketUse {
  readonly sockets: number;
  readonly subscriptions: number;
  /** Events shown to subscribers since the start. */
  readonly deliveries: number;
  /** What it took to write them. */
  readonly executions: number;
}

/** What is read when somebody looks. */
export interface MetricsSources {
  readonly readFacts: () => Promise<Facts>;
  readonly readPool: () => PoolUse;
  readonly isListening: () => boolean;
  /** Of each loop of this process's runner; none in a process that has no runner. */
  readonly readLeases: () => readonly number[];
  readonly log: Logger;
  /** How long the database's facts are good for: however many ask, it is read no more often. */
  readonly factsForMs?: number;
}

const DEFAULT_FACTS_FOR_MS = 5_000;
/** A database that hangs must not take the process's own metrics with it. */
const FACTS_TIMEOUT_MS = 4_000;
const LAG_BUCKETS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30];

/** Of the process itself (memory, CPU, event-loop delay): one set, however many servers it holds. */
let ofProcess: Registry | null = null;

function processRegistry(): Registry {
  if (ofProcess) return ofProcess;
  ofProcess = new Registry();
  collectDefaultMetrics({ register: ofProcess });
  return ofProcess;
}

export class Metrics {
  static readonly contentType = Registry.PROMETHEUS_CONTENT_TYPE;
  readonly runner = new RunnerMetrics();
  private readonly database = new DatabaseGauges();
  private readonly registry = new Registry();
  private readonly registers = [this.registry];
  private readonly databaseUp = new Gauge({
    name: 'runledger_database_up',
    help: '1 when the database answered the last time it was asked; its gauges are missing when not.',
    registers: this.registers,
  });
  private readonly pool = new Gauge({
    name: 'runledger_pool_connections',
    help: 'Connections of this process’s pool: busy, idle, and callers that wait for one.',
    labelNames: ['state'],
    registers: this.registers,
  });
  private readonly listenerUp = new Gauge({
    name: 'runledger_listener_up',
    help: '1 while this process hears the database’s bells.',
    registers: this.registers,
  });
  private readonly lag = new Histogram({
    name: 'runledger_listener_lag_seconds',
    help: 'From a change in the database to its bell in this process.',
    buckets: LAG_BUCKETS,
    registers: this.registers,
  });
  private readonly sockets = new Gauge({
    name: 'runledger_sockets',
    help: 'Open WebSockets.',
    registers: this.registers,
  });
  private readonly subscriptions = new Gauge({
    name: 'runledger_subscriptions',
    help: 'Subscriptions, over WebSockets and event streams.',
    registers: this.registers,
  });
  private readonly deliveries = new Counter({
    name: 'runledger_deliveries_total',
    help: 'Events shown to subscribers.',
    registers: this.registers,
  });
  private readonly executions = new Counter({
    name: 'runledger_subscription_executions_total',
    help: 'Executions behind these events: subscribers that are alike share one.',
    registers: this.registers,
  });
  private facts: { readonly until: number; readonly known: Promise<boolean> } | null = null;

  constructor(private readonly sources: MetricsSources) {}

  noteLag(ms: number): void {
    // Clocks of two machines differ a little: nothing is heard before it happens.
    this.lag.observe(Math.max(ms, 0) / 1000);
  }

  async render(use: SocketUse): Promise<string> {
    const { readPool, isListening, readLeases } = this.sources;
    const isUp = await this.refreshFacts();
    const { busy, idle, waiting } = readPool();
    this.databaseUp.set(isUp ? 1 : 0);
    this.pool.set({ state: 'busy' }, busy);
    this.pool.set({ state: 'idle' }, idle);
    this.pool.set({ state: 'waiting' }, waiting);
    this.listenerUp.set(isListening() ? 1 : 0);
    this.runner.showLeases(readLeases());
    this.sockets.set(use.sockets);
    this.subscriptions.set(use.subscriptions);
    this.deliveries.reset();
    this.deliveries.inc(use.deliveries);
    this.executions.reset();
    this.executions.inc(use.executions);
    const shown = [this.runner.registry, this.registry, processRegistry()];
    // What is not known is not shown: a value of a moment ago would pass for one of now.
    if (isUp) shown.unshift(this.database.registry);
    return (await Promise.all(shown.map((registry) => registry.metrics()))).join('\n');
  }

  /** Whether the database's facts are known; those who ask meanwhile wait for the same read. */
  private refreshFacts(): Promise<boolean> {
    if (this.facts && performance.now() < this.facts.until) return this.facts.known;
    const until = performance.now() + (this.sources.factsForMs ?? DEFAULT_FACTS_FOR_MS);
    this.facts = { until, known: this.readFacts() };
    return this.facts.known;
  }

  private async readFacts(): Promise<boolean> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error('the database does not answer')), FACTS_TIMEOUT_MS);
    });
    try {
      this.database.show(await Promise.race([this.sources.readFacts(), late]));
      return true;
    } catch (err) {
      this.sources.log.warn({ err }, 'the metrics could not read the database');
      return false;
    } finally {
      clearTimeout(timer);
    }
  }
}
