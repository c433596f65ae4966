// The client on a real server: what each iterator shows, when it ends, and what it refuses.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { opsRunMachine } from '../../src/domain/ops-run.js';
import { pipelineRunMachine } from '../../src/domain/pipeline-run.js';
import { ruleRunMachine } from '../../src/domain/rule-run.js';
import { publicRunId, type RunKind } from '../../src/domain/run.js';
import type { AnyRunState, RunledgerClient } from '../../src/client/index.js';
import { listApiKeys, revokeApiKey } from '../../src/store/api-key.js';
import { DatabaseProxy } from '../events/database-proxy.js';
import { appendEnd, appendLines, ledgerSeqs } from '../events/support.js';
import { ADMIN_KEY, TestApp, until } from '../support/app.js';
import { fire, makeRow, makeRuleRun, seedWorld, type World } from '../support/fixtures.js';
import { makeClient, subscriptionsAt } from './support.js';

let app: TestApp;
let world: World;
let client: RunledgerClient;

beforeAll(async () => {
  app = await TestApp.start({ RUNLEDGER_ROLE: 'api', RUNLEDGER_SANDBOX: 'off' });
  world = await seedWorld(app.db);
  client = makeClient(app.url, { apiKey: ADMIN_KEY });
});
afterAll(async () => {
  client.close();
  await app.stop();
});

const newRun = async (): Promise<string> => (await makeRuleRun(app.db, world.home, { targets: [] })).id;

async function expectNoSubscriptions(): Promise<void> {
  await until(
    () => subscriptionsAt(app),
    (open) => open === 0,
  );
}

describe('runEvents', () => {
  test('shows lines with their fields, from the cursor on; leaving the loop unsubscribes', async () => {
    const runId = await newRun();
    await appendLines(app.db, runId, 3);
    for await (const line of client.runEvents<{ id: string }>(runId, { after: 1, select: 'id' })) {
      expect(line).toEqual({
        id: `${runId}:2`,
        runId,
        seq: 2,
        type: 'log',
        level: 'INFO',
        message: 'line 0',
        payload: {},
        actor: 'writer',
        createdAt: expect.stringMatching(/^\d{4}-.*Z$/),
      });
      break;
    }
    await expectNoSubscriptions();
  });

  test('goes on through a network that is cut again and again, and one that dies without a word', async () => {
    const network = await DatabaseProxy.start(app.url);
    const remote = makeClient(network.url, { apiKey: () => Promise.resolve(ADMIN_KEY), heartbeatMs: 100 });
    const runId = await newRun();
    const seqs: number[] = [];
    const reading = (async () => {
      for await (const { seq, message } of remote.runEvents(runId)) {
        seqs.push(seq);
        if (message === 'end') return;
      }
    })();
    for (let round = 0; round < 20; round += 1) {
      await appendLines(app.db, runId, 25);
      if (round % 5 === 4) network.silence();
      else network.cut();
    }
    await appendEnd(app.db, runId);
    await reading;
    expect(seqs).toEqual(await ledgerSeqs(app.db, runId));
    remote.close();
    await network.stop();
    await expectNoSubscriptions();
  });

  test('several iterators share one socket, and end apart', async () => {
    const runId = await newRun();
    const [first, second] = [client.runEvents(runId), client.runEvents(runId)];
    await Promise.all([first.next(), second.next()]);
    const sockets = /^runledger_sockets (\d+)$/m;
    const metrics = await (await fetch(new URL('/metrics', app.url))).text();
    expect(sockets.exec(metrics)?.[1]).toBe('1');
    const pending = first.next();
    await first.return!();
    expect(await pending).toEqual({ done: true, value: undefined });
    await appendLines(app.db, runId, 1);
    expect((await second.next()).value).toMatchObject({ seq: 2 });
    await second.return!();
    await expectNoSubscriptions();
  });
});

describe('progress', () => {
  const KINDS = [
    ['RULE', ruleRunMachine, ['queue', 'cancel'], ['PREVIEW', 'QUEUED', 'CANCELLED']],
    ['PIPELINE', pipelineRunMachine, ['cancel'], ['CREATED', 'CANCELLED']],
    ['OPS', opsRunMachine, ['claim', 'start', 'succeed'], ['QUEUED', 'CLAIMED', 'RUNNING', 'SUCCESS']],
  ] as const;

  function progressOf(kind: RunKind, id: string, stay = false): AsyncIterableIterator<AnyRunState> {
    const options = { stay };
    if (kind === 'RULE') return client.ruleRunProgress(id, options);
    return kind === 'PIPELINE' ? client.pipelineRunProgress(id, options) : client.opsRunProgress(id, options);
  }

  test.each(KINDS)(
    'of a %s run: now, then each change, and it ends with the run',
    async (kind, machine, events, statuses) => {
      const row = await makeRow(app.db, world.home, machine);
      const id = publicRunId(kind, row.id);
      const seen: AnyRunState[] = [];
      for await (const run of progressOf(kind, id)) {
        const event = events[seen.length];
        seen.push(run);
        if (event) await fire(app.db, row, event);
      }
      expect(seen.map(({ status }) => status)).toEqual(statuses);
      expect(seen[0]).toMatchObject({ id, kind, finishedAt: null });
      expect(seen.at(-1)!.finishedAt).not.toBeNull();
      await expectNoSubscriptions();
      // A run that is at rest already is shown once.
      const again: AnyRunState[] = [];
      for await (const run of progressOf(kind, id)) again.push(run);
      expect(again).toHaveLength(1);
    },
  );

  test('stays with a run that may be taken up again, if it is asked to', async () => {
    const row = await makeRow(app.db, world.home, ruleRunMachine);
    for (const event of ['queue', 'start', 'fail']) await fire(app.db, row, event);
    const states = progressOf('RULE', row.id, true);
    expect((await states.next()).value).toMatchObject({ status: 'FAILED' });
    await fire(app.db, row, 'retry_all');
    expect((await states.next()).value).toMatchObject({ status: 'APPLYING' });
    await states.return!();
  });

  test('is not over while a rollback is under way', async () => {
    const row = await makeRow(app.db, world.home, ruleRunMachine);
    for (const event of ['queue', 'start', 'complete']) await fire(app.db, row, event);
    await app.db.query(
      `UPDATE rule_run SET rolling_back = true, rollback_asked_at = now(), rollback_on_conflict = 'SKIP'
       WHERE id = $1`,
      [row.id],
    );
    const statuses: string[] = [];
    for await (const { status, rollback } of client.ruleRunProgress(row.id)) {
      statuses.push(status);
      if (rollback?.underWay) await fire(app.db, row, 'roll_back');
    }
    expect(statuses).toEqual(['APPLIED', 'ROLLED_BACK']);
  });

  test('goes on after a cut, with the state that was reached meanwhile', async () => {
    const network = await DatabaseProxy.start(app.url);
    const remote = makeClient(network.url, { apiKey: ADMIN_KEY });
    const row = await makeRow(app.db, world.home, ruleRunMachine);
    const states = remote.ruleRunProgress<{ channel: { name: string } }>(row.id, {
      select: 'channel { name }',
    });
    expect((await states.next()).value).toMatchObject({ status: 'PREVIEW', channel: { name: 'shop' } });
    network.cut();
    await fire(app.db, row, 'queue');
    await fire(app.db, row, 'cancel');
    const rest: string[] = [];
    for await (const { status } of states) rest.push(status);
    expect(rest.at(-1)).toBe('CANCELLED');
    remote.close();
    await network.stop();
  });
});

test('runChanged shows runs of every kind as they change, and tells of a gap', async () => {
  const network = await DatabaseProxy.start(app.url);
  const remote = makeClient(network.url, { apiKey: ADMIN_KEY });
  let gaps = 0;
  const board = remote.runChanged({ onGap: () => (gaps += 1) });
  const shown = new Map<string, AnyRunState>();
  const made = new Set<string>();
  const reading = (async () => {
    for await (const run of board) shown.set(run.id, run);
  })();
  const makeAll = async (): Promise<void> => {
    const makings = [
      ['RULE', ruleRunMachine],
      ['PIPELINE', pipelineRunMachine],
      ['OPS', opsRunMachine],
    ] as const;
    for (const [kind, machine] of makings) {
      made.add(publicRunId(kind, (await makeRow(app.db, world.home, machine)).id));
    }
  };
  /** By kind; the board also begins with the runs of other tests. */
  const seen = (): Map<string, AnyRunState> =>
    new Map([...shown.values()].filter(({ id }) => made.has(id)).map((run) => [run.kind, run]));
  // Nothing tells when the board has begun.
  await until(makeAll, () => seen().size === 3);
  expect(seen().get('RULE')).toMatchObject({ status: 'PREVIEW', counts: { total: 0 } });
  expect(seen().get('PIPELINE')).toMatchObject({ status: 'CREATED', expectedWorkers: 1 });
  expect(seen().get('OPS')).toMatchObject({ status: 'QUEUED', env: 'staging' });
  expect(gaps).toBe(0);
  made.clear();
  network.cut();
  // The gap is told when the server has heard of the board, which may show its first runs before.
  await until(makeAll, () => seen().size === 3 && gaps > 0);
  await board.return!();
  await reading;
  remote.close();
  await network.stop();
});

describe('refused for good', () => {
  test.each([
    ['without a key', {}],
    ['with a wrong key', { apiKey: 'wrong' }],
  ])('%s', async (_how, options) => {
    const stranger = makeClient(app.url, options);
    await expect(stranger.runEvents(await newRun()).next()).rejects.toMatchObject({
      code: 'UNAUTHENTICATED',
      closeCode: 4401,
    });
  });

  test('an unknown run, another tenant’s, a cursor outside of the ledger, a field that is not there', async () => {
    const runId = await newRun();
    const foreign = await makeRuleRun(app.db, world.other, { targets: [] });
    const unknown = '01900000-0000-7000-8000-000000000000';
    for (const id of [unknown, foreign.id, 'garbage']) {
      await expect(client.runEvents(id).next()).rejects.toMatchObject({ code: 'NOT_FOUND' });
      await expect(client.ruleRunProgress(id).next()).rejects.toMatchObject({ code: 'NOT_FOUND' });
    }
    await expect(client.opsRunProgress(runId).next()).rejects.toMatchObject({ code: 'NOT_FOUND' });
    await expect(client.runEvents(runId, { after: 99 }).next()).rejects.toMatchObject({
      code: 'BAD_USER_INPUT',
      details: { lastSeq: 1 },
    });
    for (const options of [{ after: -1 }, { select: 'colour' }]) {
      await expect(client.runEvents(runId, options).next()).rejects.toMatchObject({ code: 'BAD_USER_INPUT' });
    }
  });

  test('a key that is revoked while it watches', async () => {
    const watcher = makeClient(app.url, { apiKey: await app.createKey('VIEWER') });
    const lines = watcher.runEvents(await newRun());
    await lines.next();
    const keys = await listApiKeys(app.db, 'default');
    await revokeApiKey(app.db, 'default', keys.find(({ role }) => role === 'VIEWER')!.id);
    await expect(lines.next()).rejects.toMatchObject({ code: 'UNAUTHENTICATED', closeCode: 4401 });
  });
});

test('a key that is changed for another goes on; whoever gives keys is asked once more when one is refused', async () => {
  const revoke = async (role: string): Promise<void> => {
    const keys = await listApiKeys(app.db, 'default');
    await revokeApiKey(app.db, 'default', keys.find(({ name }) => name === `default ${role}`)!.id);
  };
  const [former, latter] = [await app.createKey('OPERATOR'), await app.createKey('ADMIN')];
  const given: string[] = [];
  let key = former;
  const watcher = makeClient(app.url, {
    apiKey: () => {
      given.push(key);
      return key;
    },
  });
  const runId = await newRun();
  const lines = watcher.runEvents(runId);
  expect((await lines.next()).value).toMatchObject({ seq: 1 });
  key = latter;
  await revoke('OPERATOR');
  await appendLines(app.db, runId, 1);
  expect((await lines.next()).value).toMatchObject({ seq: 2 });
  await revoke('ADMIN');
  await expect(lines.next()).rejects.toMatchObject({ code: 'UNAUTHENTICATED', closeCode: 4401 });
  expect(given).toEqual([former, latter, latter]);
});
