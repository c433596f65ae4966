// Examines a live database: every invariant of the runs, the guards that keep them, and what keeps work from
// going on. Reads only, in bounded memory and time per statement: each check is a transaction of its own, and the
// runs are judged range by range, so that none holds back vacuum for long. Called by the cli, and by tests for
// one run.

import type { Database } from './db.js';
import { PROGRESS } from './doctor-progress.js';
import { STRUCTURE } from './doctor-structure.js';
import { INVARIANTS } from './invariants.js';
import type { SchemaVersion } from './migrate.js';
import { listRunRanges, type RunRange } from './run-range.js';
import { isUnavailable } from './sqlstate.js';

export interface Finding {
  /** The row that it is about, or what is missing. */
  readonly id: string;
  readonly fault: string;
}

export interface Check {
  readonly name: string;
  readonly says: string;
  readonly remedy: string;
  /** An error is a promise broken; a warning is work that does not go on. */
  readonly severity: 'ERROR' | 'WARNING';
}

/** What a check has found. */
interface Found {
  /** The first of them. */
  readonly findings: readonly Finding[];
  readonly count: number;
}

export interface Diagnosis extends Check, Found {}

/** What the checks go by. */
interface Patient {
  readonly db: Database;
  readonly version: SchemaVersion;
  /** All runs, in portions. */
  readonly ranges: readonly RunRange[];
}

interface Examination extends Check {
  readonly run: (patient: Patient) => Promise<Found>;
}

const MAX_SHOWN = 20;

/** Checks one after the other, as each is done. */
export async function* examine(
  db: Database,
  version: SchemaVersion,
  rowsAtOnce?: number,
): AsyncGenerator<Diagnosis> {
  const patient = { db, version, ranges: await listRunRanges(db, rowsAtOnce) };
  for (const { run, ...check } of EXAMINATIONS) yield { ...check, ...(await attempt(check, run(patient))) };
}

/** A check that cannot be made is a finding of its own: what it is about may be broken, and the others go on. */
async function attempt({ name }: Check, found: Promise<Found>): Promise<Found> {
  try {
    return await found;
  } catch (error) {
    if (isUnavailable(error)) throw error;
    const reason = error instanceof Error ? error.message : String(error);
    return { findings: [{ id: name, fault: `it could not be checked: ${reason}` }], count: 1 };
  }
}

/** What breaks an invariant of one run, in words. */
export async function findViolations(db: Database, runId: string): Promise<string[]> {
  const found: string[] = [];
  for (const { name, sql } of INVARIANTS) {
    const { findings } = await find(db, sql, [runId, runId]);
    found.push(...findings.map(({ id, fault }) => `${name} ${id}: ${fault}`));
  }
  return found;
}

/** How many rows (id, fault) a statement answers, and the first of them: however many there are. */
async function find(db: Database, sql: string, values: readonly unknown[] = []): Promise<Found> {
  const rows = await db.transaction('doctor', async (connection) => {
    await connection.query('SET TRANSACTION READ ONLY');
    const counted = `SELECT id, fault, (count(*) OVER ())::float8 AS count FROM (${sql}) found LIMIT ${MAX_SHOWN}`;
    return (await connection.query<Finding & { readonly count: number }>(counted, [...values])).rows;
  });
  return { findings: rows.map(({ id, fault }) => ({ id, fault })), count: rows[0]?.count ?? 0 };
}

async function findInRanges({ db, ranges }: Patient, sql: string): Promise<Found> {
  let count = 0;
  const findings: Finding[] = [];
  for (const { from, to } of ranges) {
    const found = await find(db, sql, [from, to]);
    count += found.count;
    findings.push(...found.findings.slice(0, MAX_SHOWN - findings.length));
  }
  return { findings, count };
}

const EXAMINATIONS: readonly Examination[] = [
  ...STRUCTURE.map(({ sql, values, ...check }) => ({
    ...check,
    severity: 'ERROR' as const,
    run: ({ db, version }: Patient) => find(db, sql, values(version)),
  })),
  ...INVARIANTS.map(({ sql, severity, ...invariant }) => ({
    ...invariant,
    severity: severity ?? ('ERROR' as const),
    run: (patient: Patient) => findInRanges(patient, sql),
  })),
  ...PROGRESS.map(({ sql, ...check }) => ({
    ...check,
    severity: 'WARNING' as const,
    run: ({ db }: Patient) => find(db, sql),
  })),
];
