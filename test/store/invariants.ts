// What must hold of a rule run whatever happened to it, read from the database in one snapshot and checked
// against the domain, not against the guards.
import { expect } from 'vitest';
import { listTransitions, type Machine } from '../../src/domain/machine.js';
import { ruleRunMachine } from '../../src/domain/rule-run.js';
import { ruleTargetMachine } from '../../src/domain/rule-target.js';
import type { Database } from '../../src/store/db.js';
import type { LedgerLine, Row } from './rows.js';

interface Picture {
  readonly run: Row;
  readonly targets: readonly Row[];
  readonly lines: readonly LedgerLine[];
}

export async function expectInvariants(db: Database, runId: string, maxAttempts = 3): Promise<void> {
  const picture = await readPicture(db, runId);
  expectTimes(picture.run);
  expectCounters(picture);
  expectApplied(picture);
  for (const target of picture.targets) {
    expectLease(target);
    expectAttempts(target, maxAttempts);
  }
  expectClaimable(picture);
  expectGapFree(picture);
  expectHistories(picture);
}

// One statement is one snapshot: the run, its targets and its ledger as of the same moment.
async function readPicture(db: Database, runId: string): Promise<Picture> {
  const [row] = await db.query<{ run: Row; targets: Row[]; lines: LedgerLine[] }>(
    `SELECT to_jsonb(run) AS run,
       (SELECT coalesce(jsonb_agg(t ORDER BY t.id), '[]') FROM rule_target t WHERE t.run_id = run.id) AS targets,
       (SELECT coalesce(jsonb_agg(e ORDER BY e.seq), '[]') FROM run_event e WHERE e.run_id = run.id) AS lines
     FROM rule_run run WHERE run.id = $1`,
    [runId],
  );
  return row!;
}

const time = (value: unknown): number => (value === null ? Number.NaN : Date.parse(String(value)));

function expectTimes(run: Row): void {
  const [queued, started, finished] = [run['queued_at'], run['started_at'], run['finished_at']].map(time);
  expect(started! < queued!, 'started before it was queued').toBe(false);
  expect(finished! < started!, 'finished before it was started').toBe(false);
  const isOpen = ['PREVIEW', 'QUEUED', 'APPLYING'].includes(String(run['status']));
  expect(run['finished_at'] === null, 'finished_at belongs to a finished run').toBe(isOpen);
}

function expectCounters({ run, targets }: Picture): void {
  const counted = ruleTargetMachine.states.map((state) => [
    `${state.toLowerCase()}_count`,
    targets.filter(({ status }) => status === state).length,
  ]);
  expect(run).toMatchObject({ ...Object.fromEntries(counted), total_count: targets.length });
}

function expectApplied({ run, targets }: Picture): void {
  if (run['status'] === 'APPLIED') {
    expect(targets.every(({ status }) => status === 'APPLIED' || status === 'ROLLED_BACK')).toBe(true);
  }
  for (const target of targets) {
    const wasApplied = target['status'] === 'APPLIED' || target['status'] === 'ROLLED_BACK';
    if (wasApplied) expect(target['applied_at']).not.toBeNull();
    expect(target['rolled_back_at'] !== null).toBe(target['status'] === 'ROLLED_BACK');
  }
}

function expectLease(target: Row): void {
  const parts = [target['lease_owner'], target['lease_until'], target['lease_epoch']];
  const present = parts.filter((part) => part !== null).length;
  if (target['status'] === 'APPLYING') expect(present).toBe(3);
  else if (target['status'] !== 'APPLIED') expect(present).toBe(0);
  else expect([0, 3]).toContain(present);
}

function expectAttempts(target: Row, maxAttempts: number): void {
  expect(target['attempts']).toBeGreaterThanOrEqual(0);
  if (target['status'] !== 'FAILED') expect(target['attempts']).toBeLessThanOrEqual(maxAttempts);
}

// A queued target that nobody is led to again would be lost, and so would a lease that recovery never looks at.
function expectClaimable({ run, targets }: Picture): void {
  const isActive = run['status'] === 'QUEUED' || run['status'] === 'APPLYING';
  if (isActive && targets.some(({ status }) => status === 'QUEUED'))
    expect(run['next_claim_at']).not.toBeNull();
  const leases = targets
    .filter(({ status }) => status === 'APPLYING')
    .map(({ lease_until }) => time(lease_until));
  if (leases.length > 0) expect(time(run['lease_floor'])).toBeLessThanOrEqual(Math.min(...leases));
}

function expectGapFree({ run, lines }: Picture): void {
  expect(lines.map(({ seq }) => seq)).toEqual(lines.map((_, index) => index + 1));
  expect(run['last_seq']).toBe(lines.length);
}

// The ledger replayed from the initial state must lead, by legal steps, to where each row is now.
function expectHistories({ run, targets, lines }: Picture): void {
  expectHistory(ruleRunMachine, String(run['status']), lines);
  const byTarget = new Map<unknown, LedgerLine[]>(targets.map(({ id }) => [id, []]));
  for (const line of lines) byTarget.get(line.target_id)?.push(line);
  for (const { id, status } of targets) expectHistory(ruleTargetMachine, String(status), byTarget.get(id)!);
}

function expectHistory(machine: Machine, status: string, lines: readonly LedgerLine[]): void {
  const legal = new Set(
    listTransitions(machine).map(({ event, from, to }) => `${machine.name}.${event} ${from} ${to}`),
  );
  let state = machine.initial;
  for (const { type, payload } of lines) {
    if (!type.startsWith(`${machine.name}.`) || payload['from'] === undefined) continue;
    const step = `${type} ${String(payload['from'])} ${String(payload['to'])}`;
    expect(legal.has(step), `${step} is no step of the machine`).toBe(true);
    expect(payload['from']).toBe(state);
    state = String(payload['to']);
  }
  expect(state).toBe(status);
}
