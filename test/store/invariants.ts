// What must hold of a run whatever happened to it, for tests: the doctor's own list.
import { expect } from 'vitest';
import type { Database } from '../../src/store/db.js';
import { findViolations } from '../../src/store/doctor.js';

export async function expectInvariants(db: Database, runId: string): Promise<void> {
  expect(await findViolations(db, runId)).toEqual([]);
}
