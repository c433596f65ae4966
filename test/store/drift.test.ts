// prisma/schema.prisma says what the migrations make, and the check can tell when it does not.
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { diffDatabase } from '../support/schema-engine.js';

const SCHEMA = fileURLToPath(new URL('../../prisma/schema.prisma', import.meta.url));

let database: TestDatabase;

beforeEach(async () => {
  database = await createTestDatabase();
});
afterEach(() => database.drop());

test('the migrated database is what the schema says', async () => {
  expect(await diffDatabase(database.url, SCHEMA)).toBe('');
});

test.each([
  ['a column more', 'ALTER TABLE rule_run ADD COLUMN extra TEXT', 'DROP COLUMN "extra"'],
  ['a column less', 'ALTER TABLE rule_run DROP COLUMN error', 'ADD COLUMN     "error"'],
  ['another type', 'ALTER TABLE rule_run ALTER COLUMN error TYPE VARCHAR(10)', '"error" SET DATA TYPE TEXT'],
  [
    'another nullability',
    'ALTER TABLE rule_target ALTER COLUMN currency DROP NOT NULL',
    '"currency" SET NOT NULL',
  ],
  ['another default', 'ALTER TABLE rule_run ALTER COLUMN source DROP DEFAULT', `"source" SET DEFAULT 'api'`],
  [
    'an index less',
    'DROP INDEX rule_run_tenant_id_correlation_id_idx',
    'CREATE INDEX "rule_run_tenant_id_correlation_id_idx"',
  ],
  [
    'a key less',
    'ALTER TABLE rule_run DROP CONSTRAINT rule_run_channel_id_fkey',
    'FOREIGN KEY ("channel_id")',
  ],
  ['an enum value more', `ALTER TYPE event_level ADD VALUE 'TRACE'`, 'event_level'],
  ['a table more', 'CREATE TABLE stray (id INTEGER PRIMARY KEY)', 'DROP TABLE "stray"'],
])('%s is found', async (_, change, remedy) => {
  await database.db.query(change);
  expect(await diffDatabase(database.url, SCHEMA)).toContain(remedy);
});
