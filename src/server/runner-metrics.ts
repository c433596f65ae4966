// What the runner of this process did. Counted where it is done, so that replicas add up. It fits the runner's
// observer; app puts the two together.

import { Counter, Gauge, Histogram, Registry } from 'prom-client';

/** As the runner tells it; only what is shown here. */
interface SettledBatch {
  readonly kind: string;
  readonly ms: number;
  readonly events: Readonly<Record<string, number>>;
  readonly runMs: number | null;
}

/** As the runner tells it; only what is shown here. */
interface RecoveredRun {
  readonly givenUp: number;
  readonly runMs: number | null;
}

const LATENCY_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60];
const RUN_BUCKETS_MS = [100, 500, 1e3, 5e3, 15e3, 60e3, 300e3, 900e3, 3_600e3, 14_400e3, 86_400e3];

export class RunnerMetrics {
  readonly registry = new Registry();
  private readonly registers = [this.registry];
  private readonly applies = new Counter({
    name: 'rules_apply_count',
    help: 'Attempts to apply a target that were settled.',
    registers: this.registers,
  });
  private readonly retries = new Counter({
    name: 'rules_target_retries',
    help: 'Attempts that ended in another try.',
    registers: this.registers,
  });
  private readonly throttles = new Counter({
    name: 'rules_429_count',
    help: 'Answers by which a channel asked to slow down.',
    registers: this.registers,
  });
  private readonly runs = new Histogram({
    name: 'rules_apply_duration_ms',
    help: 'Time from the start of a rule run to its end.',
    buckets: RUN_BUCKETS_MS,
    registers: this.registers,
  });
  private readonly outcomes = new Counter({
    name: 'runledger_target_outcomes_total',
    help: 'Settled attempts, by the event that settled them.',
    labelNames: ['event'],
    registers: this.registers,
  });
  private readonly work = new Histogram({
    name: 'runledger_work_seconds',
    help: 'Time from the claim of a unit of work to its end.',
    labelNames: ['kind', 'result'],
    buckets: LATENCY_BUCKETS,
    registers: this.registers,
  });
  private readonly claims = new Histogram({
    name: 'runledger_claim_seconds',
    help: 'Time to claim a unit of work.',
    labelNames: ['kind'],
    buckets: LATENCY_BUCKETS,
    registers: this.registers,
  });
  private readonly settles = new Histogram({
    name: 'runledger_settle_seconds',
    help: 'Time to settle a batch of results.',
    labelNames: ['kind'],
    buckets: LATENCY_BUCKETS,
    registers: this.registers,
  });
  private readonly leases = new Gauge({
    name: 'runledger_worker_leases',
    help: 'Leases that each loop of this process holds.',
    labelNames: ['worker'],
    registers: this.registers,
  });
  private readonly webhooks = new Histogram({
    name: 'runledger_webhook_seconds',
    help: 'Time that a receiver of webhooks took, by whether it took the delivery.',
    labelNames: ['result'],
    buckets: LATENCY_BUCKETS,
    registers: this.registers,
  });

  constructor() {
    // A series that begins with its first event has no rise to see: `rate` would miss just that one.
    for (const event of ['succeed', 'retry', 'exhaust']) this.outcomes.inc({ event }, 0);
    for (const result of ['taken', 'refused']) this.webhooks.zero({ result });
  }

  onClaim(kind: string, ms: number): void {
    this.claims.observe({ kind }, ms / 1000);
  }

  onWork(kind: string, result: string, ms: number): void {
    this.work.observe({ kind, result }, ms / 1000);
  }

  onSettle({ kind, ms, events, runMs }: SettledBatch): void {
    this.settles.observe({ kind }, ms / 1000);
    if (kind !== 'rule_target') return;
    this.#countOutcomes(events);
    if (runMs !== null) this.runs.observe(runMs);
  }

  /** The attempt of a target that is given up is settled so; any other costs none. */
  onRecover({ givenUp, runMs }: RecoveredRun): void {
    this.#countOutcomes({ exhaust: givenUp });
    if (runMs !== null) this.runs.observe(runMs);
  }

  #countOutcomes(events: SettledBatch['events']): void {
    for (const [event, count] of Object.entries(events)) {
      this.applies.inc(count);
      this.outcomes.inc({ event }, count);
    }
    this.retries.inc(events['retry'] ?? 0);
  }

  onThrottle(answers: number): void {
    this.throttles.inc(answers);
  }

  onWebhook(result: string, ms: number): void {
    this.webhooks.observe({ result }, ms / 1000);
  }

  /** Loops are numbered: their ids are new in every process, and would be labels without end. */
  showLeases(leases: readonly number[]): void {
    leases.forEach((count, index) => this.leases.set({ worker: String(index + 1) }, count));
  }
}
