// Starts runs by the clock. Each tick of a schedule starts one run, under a key of its own; a tick that was
// missed starts one for all that were missed, or none, as the schedule says. A refusal (a rule that was
// disabled, a run beyond the guardrails, which then waits to be confirmed) is kept on the schedule for people to
// see. A run that takes long to make keeps no other schedule waiting.

import { setTimeout as delay } from 'node:timers/promises';
import { isFired } from '../domain/schedule.js';
import type { Viewer } from '../domain/viewer.js';
import { AppError } from '../errors.js';
import type { Database } from '../store/db.js';
import { findKeyedRun } from '../store/idempotency.js';
import { startPipelineRun } from '../store/pipeline-run-control.js';
import { dropPreview, startRuleRun } from '../store/scheduled-rule-run.js';
import {
  listDueTicks,
  pullBackNextTimes,
  settleTick,
  type DueTick,
  type TickOutcome,
} from '../store/schedule.js';
import { tellingOf, type Log } from './log.js';
import type { MaintenanceJob } from './maintenance.js';

const PULL_BACK_EVERY_MS = 60_000;
/** Runs that are made at once; what is due beyond that waits its turn, and is no later for it. */
const MAX_AT_ONCE = 4;
/** Between two looks for more, while some run is being made. */
const LOOK_AGAIN_MS = 1_000;

const NOTHING: TickOutcome = { runId: null, error: null };

export class Schedules implements MaintenanceJob {
  readonly name = 'schedules';
  readonly everyMs = 1_000;
  #pulledBackAt = -Infinity;

  constructor(
    private readonly db: Database,
    private readonly log: Log,
  ) {}

  /** Until nothing that was due is under way. */
  async run(signal: AbortSignal): Promise<void> {
    await this.#pullBack();
    const waiting = new Map<string, DueTick>();
    const underWay = new Map<string, Promise<void>>();
    const next = (): void => {
      for (const [id, tick] of waiting) {
        if (underWay.size >= MAX_AT_ONCE || signal.aborted) return;
        waiting.delete(id);
        underWay.set(
          id,
          this.#take(tick).finally(() => {
            underWay.delete(id);
            next();
          }),
        );
      }
    };
    do {
      for (const tick of await listDueTicks(this.db)) {
        const { id } = tick.schedule;
        if (!underWay.has(id) && !waiting.has(id)) waiting.set(id, tick);
      }
      next();
      await endOrPause(underWay);
    } while (underWay.size > 0);
  }

  async #pullBack(): Promise<void> {
    if (performance.now() - this.#pulledBackAt < PULL_BACK_EVERY_MS) return;
    const { pulled, unknown } = await pullBackNextTimes(this.db);
    this.#pulledBackAt = performance.now();
    if (pulled > 0) this.log.warn({ pulled }, 'schedules were set for too late: has the clock jumped?');
    for (const { schedule, reason } of unknown) {
      const { id, name, tenantId: tenant } = schedule;
      this.log.warn(
        { schedule: id, name, tenant, reason },
        'the times of a schedule cannot be told: it waits',
      );
    }
  }

  async #take(tick: DueTick): Promise<void> {
    const { schedule, at, lateMs } = tick;
    const facts = { schedule: schedule.id, name: schedule.name, tenant: schedule.tenantId, at };
    try {
      const outcome = await this.#start(tick);
      if (!(await settleTick(this.db, tick, outcome))) return;
      this.#tell({ ...facts, lateMs }, outcome);
    } catch (err) {
      // It comes again with the next look; other schedules need not wait for it.
      this.log.error({ ...facts, err }, 'a schedule could not be worked');
    }
  }

  #tell(facts: object, { runId, error: reason }: TickOutcome): void {
    const ofRun = runId === null ? {} : tellingOf({ runId });
    if (reason === null && runId === null) this.log.warn(facts, 'a missed tick was passed over');
    else if (reason === null) this.log.info({ ...facts, ...ofRun }, 'a schedule started a run');
    else if (runId === null) this.log.warn({ ...facts, reason }, 'a schedule started nothing');
    else this.log.warn({ ...facts, ...ofRun, reason }, 'a schedule made a run that waits to be confirmed');
  }

  async #start(tick: DueTick): Promise<TickOutcome> {
    const { db } = this;
    if (!isFired(tick.schedule.missed, tick.lateMs) && !(await isStarted(db, tick))) return NOTHING;
    try {
      return await startRun(db, tick);
    } catch (error) {
      if (!(error instanceof AppError && error.isRefusal)) throw error;
      return { runId: null, error: error.message };
    }
  }
}

/** Until none is under way, or it is time for another look. */
async function endOrPause(underWay: ReadonlyMap<string, Promise<void>>): Promise<void> {
  const pause = new AbortController();
  const wait = delay(LOOK_AGAIN_MS, true, { signal: pause.signal }).catch(() => true);
  let isOver = false;
  while (underWay.size > 0 && !isOver) {
    isOver = await Promise.race([wait, ...[...underWay.values()].map((work) => work.then(() => false))]);
  }
  pause.abort();
}

const keyOf = ({ schedule, at }: DueTick): string => `schedule:${schedule.id}:${at.toISOString()}`;

/** Whether its run was made before whoever made it was cut short. */
async function isStarted(db: Database, tick: DueTick): Promise<boolean> {
  const { tenantId, kind } = tick.schedule;
  const operation = kind === 'PIPELINE' ? 'startPipelineRun' : 'createRuleRun';
  return (await findKeyedRun(db, { tenantId, operation, key: keyOf(tick) })) !== null;
}

async function startRun(db: Database, tick: DueTick): Promise<TickOutcome> {
  const { id, tenantId, name, projectId, request, lastRunId } = tick.schedule;
  const viewer: Viewer = { tenantId, role: 'ADMIN', actor: `schedule:${name}`, keyId: null };
  const idempotencyKey = keyOf(tick);
  const metadata = { scheduleId: id, scheduledFor: tick.at.toISOString() };
  if (request.kind === 'PIPELINE') {
    const { sourceId, runType } = request;
    const input = { projectId, sourceId, runType, allowConcurrent: false, metadata, idempotencyKey };
    return { runId: (await startPipelineRun(db, viewer, input)).id, error: null };
  }
  const { ruleId, channelId } = request;
  const { runId, refusal } = await startRuleRun(db, viewer, {
    projectId,
    channelId,
    ruleId,
    metadata,
    correlationId: null,
    source: 'schedule',
    idempotencyKey,
  });
  // Beyond the guardrails at every tick, a schedule leaves one preview to be confirmed, not one of each tick.
  if (lastRunId !== null && lastRunId !== runId) await dropPreview(db, viewer, lastRunId);
  return { runId, error: refusal };
}
