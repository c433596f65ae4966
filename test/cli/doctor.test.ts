// `runledger doctor` and `runledger keys` as processes of their own, on real databases.
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Arguments, UsageError } from '../../src/cli/command.js';
import { doctorCommand } from '../../src/cli/doctor.js';
import { keysCommand } from '../../src/cli/keys.js';
import { findViewerByKey, hasUsableKey } from '../../src/store/api-key.js';
import { Database } from '../../src/store/db.js';
import { createEmptyDatabase, createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeQueuedRun, seedWorld } from '../support/fixtures.js';
import { countRows } from '../store/rows.js';
import { Cli, type Ended } from './support.js';

let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database.drop());

const run = (...args: string[]): Promise<Ended> => Cli.run('', args, { DATABASE_URL: database.url });

describe('doctor', () => {
  test('a healthy database is well, and is left as it was', async () => {
    const world = await seedWorld(database.db);
    await makeQueuedRun(database.db, world.home);
    const before = await countRows(database.db);
    const { code, stdout, stderr } = await run('doctor');
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(/^ok {6}machines: /m);
    expect(stdout).toMatch(/^\d+ checks: 0 broken, 0 warnings$/m);
    expect(await countRows(database.db)).toEqual(before);
  });

  test('a role that may only read is enough', async () => {
    const role = `reader_${randomUUID().slice(0, 8)}`;
    await database.db.query(`CREATE ROLE ${role} LOGIN PASSWORD 'reader' IN ROLE pg_read_all_data`);
    const url = new URL(database.url);
    url.username = role;
    url.password = 'reader';
    try {
      const { code, stdout, stderr } = await run('doctor', '--quiet', '--database', url.href);
      expect({ code, stdout, stderr }).toMatchObject({ code: 0, stderr: '' });
    } finally {
      await database.db.query(`DROP ROLE ${role}`);
    }
  });

  test('what is broken is named, with what to do, and ends it with 1', async () => {
    await database.db.query('ALTER TABLE run_event DISABLE TRIGGER run_event_append_only');
    const { code, stdout } = await run('doctor', '--quiet');
    expect(code).toBe(1);
    expect(stdout).toContain('BROKEN  guards: ');
    expect(stdout).toContain('run_event_append_only: the trigger is disabled');
    expect(stdout).toContain('→ ALTER TABLE');
    expect(stdout).not.toContain('ok ');
    const { stdout: json } = await run('doctor', '--json');
    const guards = json
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { name: string; count: number });
    expect(guards.find(({ name }) => name === 'guards')).toMatchObject({ count: 1, severity: 'ERROR' });
    await database.db.query('ALTER TABLE run_event ENABLE TRIGGER run_event_append_only');
  });

  test('a target that was tried more often than its ledger tells ends it with 1', async () => {
    const setAttempts = (attempts: number) =>
      database.db.query('UPDATE rule_target SET attempts = $1 WHERE id = (SELECT min(id) FROM rule_target)', [
        attempts,
      ]);
    await setAttempts(99);
    const { code, stdout } = await run('doctor', '--quiet');
    expect(code).toBe(1);
    expect(stdout).toContain('BROKEN  ledger_status: ');
    expect(stdout).toMatch(/is QUEUED after 99 attempts, its ledger says QUEUED after 0 attempts/);
    await setAttempts(0);
  });

  test('a warning alone fails only when asked to', async () => {
    await database.db.query(`UPDATE rule_run SET next_claim_at = now() - interval '1 hour'`);
    const relaxed = await run('doctor', '--quiet');
    expect(relaxed.code).toBe(0);
    expect(relaxed.stdout).toContain('warn    workers: ');
    expect((await run('doctor', '--quiet', '--strict')).code).toBe(1);
  });

  test('an address that is none is wrong usage of the option, not of a variable', async () => {
    const { code, stderr } = await Cli.run('', ['doctor', '--database', 'app:hidden@host']);
    expect(code).toBe(2);
    expect(stderr).toMatch(/^runledger: --database must be a URL .*\(see runledger doctor --help\)\n$/);
    expect(stderr).not.toContain('hidden');
  });

  test('a database that is empty, or is not there, is told in one line', async () => {
    const empty = await createEmptyDatabase();
    const onEmpty = await run('doctor', '--database', empty.url);
    await empty.drop();
    expect(onEmpty).toMatchObject({ code: 4, stdout: '' });
    expect(onEmpty.stderr).toBe(
      'runledger: The database has no tables of Runledger: start the server once.\n',
    );
    const nowhere = await run('doctor', '--database', 'postgresql://nobody@127.0.0.1:9/none');
    expect(nowhere).toMatchObject({ code: 4, stdout: '' });
    expect(nowhere.stderr.trim().split('\n')).toHaveLength(1);
    const absent = new URL(database.url);
    absent.pathname = '/not_there';
    const noSuch = await run('doctor', '--database', absent.href);
    expect(noSuch).toMatchObject({ code: 4, stdout: '' });
    expect(noSuch.stderr).toBe(
      'runledger: The database does not let us in: database "not_there" does not exist.\n',
    );
  });
});

describe('keys', () => {
  const lastLine = ({ stdout }: Ended) => stdout.trim().split('\n').at(-1)!;

  test('are made, listed and revoked', async () => {
    const made = await run('keys', 'create', '--tenant', 'acme', '--name', 'ci', '--role', 'WORKER');
    expect(made.code).toBe(0);
    const secret = lastLine(made);
    expect(made.stdout).toBe(`${secret}\n`);
    const viewer = await findViewerByKey(database.db, secret);
    expect(viewer).toMatchObject({ tenantId: 'acme', role: 'WORKER', actor: 'key:ci' });
    const listed = await run('keys', 'list', '--tenant', 'acme');
    expect(listed.stdout).toContain(viewer!.keyId!);
    expect(listed.stdout).not.toContain(secret);
    const revoked = await run('keys', 'revoke', viewer!.keyId!, '--tenant', 'acme');
    expect(revoked).toMatchObject({ code: 0, stdout: expect.stringContaining('is revoked since') as string });
    expect(await findViewerByKey(database.db, secret)).toBeNull();
  });

  test.each(['create', 'list', 'revoke'])('%s --help tells how, and touches nothing', async (verb) => {
    const { code, stdout } = await run('keys', verb, '--help', '--database', 'postgresql://127.0.0.1:9/none');
    expect(code).toBe(0);
    expect(stdout).toContain('Usage: runledger keys');
    expect(stdout).toMatch(new RegExp(`^  ${verb} `, 'm'));
  });

  test('the first key of an empty database makes its tables', async () => {
    const empty = await createEmptyDatabase();
    const made = await run(
      'keys',
      'create',
      '--name',
      'first',
      '--role',
      'ADMIN',
      '--json',
      '--database',
      empty.url,
    );
    expect(JSON.parse(made.stdout)).toMatchObject({ tenantId: 'default', role: 'ADMIN', name: 'first' });
    const db = new Database({ url: empty.url });
    expect(await hasUsableKey(db)).toBe(true);
    await db.close();
    await empty.drop();
  });

  test.each([
    ['keys', [], 'create, list or revoke', keysCommand],
    ['keys', ['make'], 'create, list or revoke', keysCommand],
    ['keys', ['create'], '--name is needed', keysCommand],
    ['keys', ['create', '--name', 'x', '--role', 'KING'], '--role must be', keysCommand],
    ['keys', ['revoke'], 'one key', keysCommand],
    ['keys', ['list', 'more'], 'options only', keysCommand],
    ['doctor', ['me'], 'options only', doctorCommand],
  ])('wrong usage of %s: %j', async (_, args, message, command) => {
    const running = command.run(Arguments.parse(command, args));
    await expect(running).rejects.toThrow(UsageError);
    await expect(running).rejects.toThrow(message);
  });

  test('a key that there is not, and a tenant that cannot be, are refused', async () => {
    const unknown = await run('keys', 'revoke', 'garbage');
    expect(unknown).toMatchObject({
      code: 1,
      stdout: '',
      stderr: 'runledger: API key garbage was not found.\n',
    });
    const nameless = await run('keys', 'create', '--name', 'x', '--tenant', 'Not A Tenant');
    expect(nameless).toMatchObject({ code: 1, stdout: '' });
  });
});
