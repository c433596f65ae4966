// Starts runs by the clock. Each tick of a schedule starts one run, under a key of its own; a tick that was
// missed starts one for all that were missed, or none, as the schedule says. A refusal (a rule that was
// disabled, a run beyond the guardrails) is kept on the schedule for people to see.

import { isFired } from '../domain/schedule.js';
import type { Viewer } from '../domain/viewer.js';
import { AppError } from '../errors.js';
import type { Database } from '../store/db.js';
import { startPipelineRun } from '../store/pipeline-run-control.js';
import { createRuleRun, queueRuleRun } from '../store/rule-run.js';
import {
  listDueTicks,
  pullBackNextTimes,
  settleTick,
  type DueTick,
  type TickOutcome,
} from '../store/schedule.js';
import type { Log } from './log.js';
import type { MaintenanceJob } from './maintenance.js';

const PULL_BACK_EVERY_MS = 60_000;

export class Schedules implements MaintenanceJob {
  readonly name = 'schedules';
  readonly everyMs = 1_000;
  #pulledBackAt = -Infinity;

  constructor(
    private readonly db: Database,
    private readonly log: Log,
  ) {}

  async run(signal: AbortSignal): Promise<void> {
    await this.#pullBack();
    for (const tick of await listDueTicks(this.db)) {
      if (signal.aborted) return;
      await this.#take(tick);
    }
  }

  async #pullBack(): Promise<void> {
    if (performance.now() - this.#pulledBackAt < PULL_BACK_EVERY_MS) return;
    const pulled = await pullBackNextTimes(this.db);
    this.#pulledBackAt = performance.now();
    if (pulled > 0) this.log.warn({ pulled }, 'schedules were set for too late: has the clock jumped?');
  }

  async #take(tick: DueTick): Promise<void> {
    const { schedule, at, lateMs } = tick;
    const facts = { schedule: schedule.id, name: schedule.name, tenant: schedule.tenantId, at };
    try {
      const outcome = await this.#start(tick);
      if (!(await settleTick(this.db, tick, outcome))) return;
      if (outcome.error !== null)
        this.log.warn({ ...facts, reason: outcome.error }, 'a schedule started nothing');
      else if (outcome.runId === null) this.log.warn({ ...facts, lateMs }, 'a missed tick was passed over');
      else this.log.info({ ...facts, runId: outcome.runId }, 'a schedule started a run');
    } catch (err) {
      // It comes again with the next look; other schedules need not wait for it.
      this.log.error({ ...facts, err }, 'a schedule could not be worked');
    }
  }

  async #start(tick: DueTick): Promise<TickOutcome> {
    if (!isFired(tick.schedule.missed, tick.lateMs)) return { runId: null, error: null };
    try {
      return { runId: await startRun(this.db, tick), error: null };
    } catch (error) {
      if (!(error instanceof AppError && error.isRefusal)) throw error;
      return { runId: null, error: error.message };
    }
  }
}

async function startRun(db: Database, { schedule, at }: DueTick): Promise<string> {
  const { id, tenantId, name, projectId, request } = schedule;
  const viewer: Viewer = { tenantId, role: 'ADMIN', actor: `schedule:${name}`, keyId: null };
  const idempotencyKey = `schedule:${id}:${at.toISOString()}`;
  const metadata = { scheduleId: id, scheduledFor: at.toISOString() };
  if (request.kind === 'PIPELINE') {
    const { sourceId, runType } = request;
    const input = { projectId, sourceId, runType, allowConcurrent: false, metadata, idempotencyKey };
    return (await startPipelineRun(db, viewer, input)).id;
  }
  const { ruleId, channelId } = request;
  const run = await createRuleRun(db, viewer, {
    projectId,
    channelId,
    ruleId,
    metadata,
    correlationId: null,
    source: 'schedule',
    idempotencyKey,
  });
  await queueRuleRun(db, viewer, { runId: run.id, idempotencyKey });
  return run.id;
}
