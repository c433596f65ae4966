// Lists of runs: found by words in their metadata, in a stable order to the microsecond, counted up to a cap,
// and read by index whatever the filter.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { countUpTo } from '../../src/store/page.js';
import { countRuleRuns, listRuleRuns, runCursor, type RuleRunFilter } from '../../src/store/rule-run-list.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeRuleRun, seedWorld, type Tenant, type World } from '../support/fixtures.js';

let database: TestDatabase;
let world: World;
let home: Tenant;

beforeAll(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
  home = world.home;
});
afterAll(() => database.drop());

const list = (filter: RuleRunFilter, first = 100, after: string | null = null, tenant = home) =>
  listRuleRuns(database.db, tenant.viewer, { first, after, filter });

describe('words in the metadata', () => {
  const made = new Map<string, string>();
  const projectId = 'words';

  beforeAll(async () => {
    const metadata = {
      spring: { campaign: 'spring-sale 2026', ticket: 'OPS-4711', count: 12 },
      nested: { owner: { name: 'Ana Čapek' }, tags: ['Spring', 'v1.2.3'] },
      empty: {},
      long: { text: 'word '.repeat(50_000) },
    };
    for (const [name, value] of Object.entries(metadata)) {
      made.set((await makeRuleRun(database.db, home, { projectId, metadata: value })).id, name);
    }
    await makeRuleRun(database.db, world.other, { metadata: metadata.spring });
  });

  const find = async (text: string, filter: RuleRunFilter = { projectId }) =>
    (await list({ ...filter, text })).nodes.map(({ id }) => made.get(id)).sort();

  test.each([
    ['spring', ['nested', 'spring']],
    ['SPRING', ['nested', 'spring']],
    ['spr', ['nested', 'spring']],
    ['sale spring', ['spring']],
    ['spring-sal', ['spring']],
    ['ops-4711', ['spring']],
    ['ops 47', ['spring']],
    ['12', ['spring']],
    ['campaign', ['spring']],
    ['ana čapek', ['nested']],
    ['v1.2.3', ['nested']],
    ['v1.9', []],
    ['ring', []],
    ['word', ['long']],
    ['', []],
    [' -- ', []],
    ["'; DROP", []],
    ['a & b | !c:*', []],
  ])('%j', async (text, expected) => {
    expect(await find(text)).toEqual(expected);
    expect(await countRuleRuns(database.db, home.viewer, { projectId, text })).toEqual({
      count: expected.length,
      isCapped: false,
    });
  });

  test('together with another filter', async () => {
    expect(await find('spring', { projectId: 'elsewhere' })).toEqual([]);
    expect(await find('spring', { status: ['PREVIEW'], projectId })).toEqual(['nested', 'spring']);
  });

  test("a tenant's words are its own", async () => {
    const theirs = await list({ text: 'spring' }, 100, null, world.other);
    expect(theirs.nodes).toHaveLength(1);
  });

  test('follow the metadata when it changes', async () => {
    const { id } = await makeRuleRun(database.db, home, { projectId: 'moved', metadata: { note: 'before' } });
    await database.db.query(`UPDATE rule_run SET metadata = '{"note": "after"}' WHERE id = $1`, [id]);
    expect((await list({ projectId: 'moved', text: 'before' })).nodes).toEqual([]);
    expect((await list({ projectId: 'moved', text: 'after' })).nodes).toHaveLength(1);
  });
});

test('runs made in the same millisecond, or the same microsecond, each stand on one page', async () => {
  const projectId = 'crowd';
  const ids: string[] = [];
  for (let index = 0; index < 6; index += 1) {
    ids.push((await makeRuleRun(database.db, home, { projectId })).id);
  }
  await database.db.query(
    `UPDATE rule_run SET created_at = timestamptz '2026-01-01 12:00:00.123456Z'
       + (array_position($1::uuid[], id) / 2) * interval '1 microsecond' WHERE id = ANY($1::uuid[])`,
    [ids],
  );
  const seen: string[] = [];
  let after: string | null = null;
  do {
    const page = await list({ projectId }, 1, after);
    seen.push(...page.nodes.map(({ id }) => id));
    after = page.hasNextPage ? runCursor(page.nodes[0]!) : null;
  } while (after !== null);
  expect(seen).toHaveLength(6);
  expect(new Set(seen)).toEqual(new Set(ids));
  expect(seen).toEqual((await list({ projectId })).nodes.map(({ id }) => id));
});

test('counting stops at the cap, and says so', async () => {
  const numbers = 'generate_series(1, $1::integer)';
  expect(await countUpTo(database.db, numbers, [5], 5)).toEqual({ count: 5, isCapped: false });
  expect(await countUpTo(database.db, numbers, [6], 5)).toEqual({ count: 5, isCapped: true });
  expect(await countUpTo(database.db, numbers, [10_001])).toEqual({ count: 10_000, isCapped: true });
});

test.each(['nonsense', 'WyJhIl0', Buffer.from('["2026","x"]').toString('base64url')])(
  'the cursor %s is refused',
  async (after) => {
    await expect(list({}, 10, after)).rejects.toMatchObject({ code: 'BAD_USER_INPUT', field: ['after'] });
  },
);

describe('with many runs, each filter has its index, in order', () => {
  beforeAll(async () => {
    // Only their shape matters: the guards would write a ledger line for each.
    await database.db.transaction('test', async (connection) => {
      await connection.query('SET LOCAL session_replication_role = replica');
      await connection.query(
        `INSERT INTO rule_run (id, tenant_id, project_id, channel_id, actor, correlation_id, created_at, metadata)
         SELECT gen_random_uuid(), $1, 'p' || i % 100, $2, 'test', 'c' || i,
           now() - i * interval '1 minute', jsonb_build_object('ticket', 'OPS-' || i)
         FROM generate_series(1, 20000) AS i`,
        ['default', home.channelId],
      );
      await connection.query(
        `INSERT INTO rule_run_words SELECT id, tenant_id, to_tsvector('simple', words_of(metadata::text))
         FROM rule_run ON CONFLICT DO NOTHING`,
      );
    });
    await database.db.query('ANALYZE rule_run');
    await database.db.query('ANALYZE rule_run_words');
  });

  test.each<[condition: string, index: string, inOrder: boolean]>([
    ['true', 'rule_run_tenant_id_created_at_id_idx', true],
    [`status = 'FAILED'`, 'rule_run_tenant_id_status_created_at_id_idx', true],
    [`project_id = 'p7'`, 'rule_run_tenant_id_project_id_created_at_id_idx', true],
    [`created_at < now() - interval '10 days'`, 'rule_run_tenant_id_created_at_id_idx', true],
    [`correlation_id = 'c77'`, 'rule_run_tenant_id_correlation_id_idx', false],
    [
      `id IN (SELECT run_id FROM rule_run_words WHERE tenant_id = 'default' AND words @@ words_query('ops-123'))`,
      'rule_run_words_words_idx',
      false,
    ],
  ])('%s', async (condition, index, inOrder) => {
    const plan = await database.db.transaction('test', async (connection) => {
      // The words of so few runs would be read in no time anyway.
      await connection.query('SET LOCAL enable_seqscan = off');
      const { rows } = await connection.query<{ 'QUERY PLAN': string }>(
        `EXPLAIN SELECT id FROM rule_run WHERE tenant_id = 'default' AND ${condition}
         ORDER BY created_at DESC, id DESC LIMIT 21`,
      );
      return rows.map((row) => row['QUERY PLAN']).join('\n');
    });
    expect(plan).toContain(index);
    if (inOrder) expect(plan).not.toContain('Sort');
  });
});
