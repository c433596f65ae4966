// Where cursors are and how they come and go: replay from a seq, runs that have ended, endpoints that are gone, a
// clock that jumps.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { opsRunMachine } from '../../src/domain/ops-run.js';
import { pruneDueRuns } from '../../src/store/prune.js';
import { deleteWebhookEndpoint, switchWebhookEndpoint } from '../../src/store/webhook-endpoint.js';
import { replayWebhook } from '../../src/store/webhook-replay.js';
import { mendTimes, sweepCursors } from '../../src/store/webhook-sweep.js';
import { faultOf } from '../store/rows.js';
import { until } from '../support/app.js';
import { fire, makeRow } from '../support/fixtures.js';
import { endedRun, keepFor } from '../support/retention.js';
import { upTo, WebhookWorld } from './webhook-world.js';

let hooks: WebhookWorld;

beforeEach(async () => {
  hooks = await WebhookWorld.open();
});
afterEach(() => hooks.close());

const cursors = () => hooks.query('SELECT * FROM webhook_cursor ORDER BY id');

describe('replay', () => {
  const replay = (endpointId: string, runId: string, afterSeq: number) =>
    replayWebhook(hooks.db, hooks.world.home.viewer, { endpointId, runId, afterSeq });

  test('sends what comes after a seq again, or for the first time', async () => {
    const before = await hooks.makeRun();
    const { id } = await hooks.save('/hook');
    const runId = await hooks.makeRun();
    await hooks.write(runId, 3);
    await hooks.deliver();
    expect(await replay(id, runId, 3)).toMatchObject({ waitingRuns: 1 });
    await replay(id, before, 0);
    await hooks.deliver();
    expect(hooks.seqs('/hook', runId)).toEqual([1, 2, 3, 4, 5, 4, 5]);
    expect(hooks.seqs('/hook', before)).toEqual([1, 2]);
    await hooks.deliver();
    expect(hooks.receiver.received).toHaveLength(3);
  });

  test('of a run that has ended and was swept away', async () => {
    const { id } = await hooks.save('/hook');
    const runId = await hooks.makeRun();
    await hooks.cancel(runId);
    await hooks.deliver();
    await sweepCursors(hooks.db);
    expect(await cursors()).toEqual([]);
    const last = await hooks.lastSeq(runId);
    await replay(id, runId, last - 1);
    await hooks.deliver();
    expect(hooks.seqs('/hook', runId)).toEqual([...upTo(last), last]);
  });

  test('waits for the request that is under way, and is not undone by it', async () => {
    const { id } = await hooks.save('/hook');
    const runId = await hooks.makeRun();
    hooks.receiver.answers.set('/hook', 'hang');
    const delivering = hooks.deliver({ timeoutMs: 60_000 });
    await hooks.receiver.next();
    await hooks.write(runId, 2);
    await replay(id, runId, 1);
    // Leased: nobody else sends it meanwhile.
    await hooks.deliver();
    expect(hooks.receiver.received).toHaveLength(1);
    hooks.receiver.answers.delete('/hook');
    hooks.receiver.release();
    await delivering;
    expect(hooks.seqs('/hook', runId)).toEqual([1, 2, 2, 3, 4]);
  });

  test.each([
    ['beyond its end', 3],
    ['before its beginning', -1],
  ])('from a seq %s is refused', async (_, afterSeq) => {
    const { id } = await hooks.save('/hook');
    const fault = await faultOf(replay(id, await hooks.makeRun(), afterSeq));
    expect(fault).toMatchObject({ code: 'INVALID_INPUT', field: ['input', 'afterSeq'] });
  });

  test('of what is not wanted, not there or another tenant’s is refused', async () => {
    const { id } = await hooks.save('/hook', { kinds: ['OPS'] });
    const theirs = await hooks.makeRun(hooks.world.other);
    const { id: foreign } = await hooks.save('/foreign', {}, hooks.world.other);
    const runId = await hooks.makeRun();
    expect(await faultOf(replay(id, runId, 0))).toMatchObject({ code: 'INVALID_INPUT' });
    expect(await faultOf(replay(id, theirs, 0))).toMatchObject({ code: 'NOT_FOUND' });
    expect(await faultOf(replay(foreign, runId, 0))).toMatchObject({ code: 'NOT_FOUND' });
    expect(await faultOf(replay('nonsense', runId, 0))).toMatchObject({ code: 'NOT_FOUND' });
  });
});

describe('what was pruned', () => {
  const prunedRun = async (): Promise<string> => {
    const runId = await endedRun(hooks.db, hooks.world.home, 'FAILED', 31);
    await keepFor(hooks.db, hooks.world.home, 'RULE', 30);
    await pruneDueRuns(hooks.db);
    return runId;
  };

  test('is not replayed in silence: the answer says from where it can be', async () => {
    const runId = await prunedRun();
    const { id } = await hooks.save('/hook');
    const last = await hooks.lastSeq(runId);
    const replay = (afterSeq: number) =>
      replayWebhook(hooks.db, hooks.world.home.viewer, { endpointId: id, runId, afterSeq });
    expect(await faultOf(replay(last - 1))).toMatchObject({
      code: 'CONFLICT',
      details: { prunedSeq: last, lastSeq: last },
    });
    await replay(last);
    await hooks.deliver();
    expect(hooks.receiver.received).toEqual([]);
  });

  test('while the endpoint was off is told to it when it is on again, once it takes it', async () => {
    const { id } = await hooks.save('/hook', { eventTypes: ['log'] });
    const { viewer } = hooks.world.home;
    await switchWebhookEndpoint(hooks.db, viewer, id, false);
    const runId = await prunedRun();
    const last = await hooks.lastSeq(runId);
    await hooks.write(runId, 1);
    hooks.receiver.answers.set('/hook', 500);
    await switchWebhookEndpoint(hooks.db, viewer, id, true);
    await hooks.deliver();
    hooks.receiver.answers.delete('/hook');
    await hooks.makeDue();
    await hooks.deliver();
    const told = hooks.receiver.received.map(({ body }) => body);
    expect(told).toHaveLength(2);
    expect(told[0]).toMatchObject({
      id: `${runId}:1-${last + 1}`,
      type: 'run.events',
      pruned: { fromSeq: 1, toSeq: last },
      events: [{ seq: last + 1 }],
    });
    expect(told[1]).toEqual(told[0]);
  });

  test('is told also where no line is left', async () => {
    const { id } = await hooks.save('/hook');
    const { viewer } = hooks.world.home;
    await switchWebhookEndpoint(hooks.db, viewer, id, false);
    const runId = await prunedRun();
    const last = await hooks.lastSeq(runId);
    await switchWebhookEndpoint(hooks.db, viewer, id, true);
    await hooks.deliver();
    expect(hooks.receiver.received.map(({ body }) => body)).toMatchObject([
      { id: `${runId}:1-${last}`, pruned: { fromSeq: 1, toSeq: last }, events: [] },
    ]);
  });
});

describe('cursors', () => {
  test('of runs that ended and were sent whole are swept; a later line brings one back', async () => {
    await hooks.save('/hook');
    const open = await hooks.makeRun();
    const runId = await hooks.makeRun();
    await hooks.cancel(runId);
    await sweepCursors(hooks.db);
    expect(await cursors()).toHaveLength(1);
    await hooks.deliver();
    expect(await cursors()).toHaveLength(2);
    expect(await sweepCursors(hooks.db)).toMatchObject({ swept: 1 });
    expect(await cursors()).toMatchObject([{ run_id: open }]);
    const last = await hooks.lastSeq(runId);
    await hooks.write(runId, 1);
    await hooks.deliver();
    expect(hooks.seqs('/hook', runId)).toEqual(upTo(last + 1));
  });

  test('are not swept while somebody writes to the run', async () => {
    await hooks.save('/hook');
    const row = await makeRow(hooks.db, hooks.world.home, opsRunMachine);
    await fire(hooks.db, row, 'cancel');
    await hooks.deliver();
    await hooks.db.transaction('test', async (connection) => {
      await connection.query('UPDATE ops_run SET last_seq = last_seq WHERE id = $1', [row.id]);
      expect(await sweepCursors(hooks.db)).toMatchObject({ swept: 0 });
    });
    expect(await sweepCursors(hooks.db)).toMatchObject({ swept: 1 });
  });

  test('lose no line while runs are made, end, go on after their end and are swept, all at once', async () => {
    await hooks.startDeliverer();
    await hooks.startDeliverer();
    await hooks.save('/hook', { batchSize: 3 });
    let isOver = false;
    const sweeping = (async () => {
      while (!isOver) await sweepCursors(hooks.db);
    })();
    const runIds = await Promise.all(
      Array.from({ length: 12 }, async () => {
        const runId = await hooks.makeRun();
        await hooks.write(runId, 4);
        await hooks.cancel(runId);
        for (let late = 0; late < 8; late += 1) await hooks.write(runId, 1 + (late % 3));
        return runId;
      }),
    );
    // What a bell does not bring is found by the look that comes now and then.
    await hooks.startDeliverer();
    for (const runId of runIds) {
      const last = await hooks.lastSeq(runId);
      const seqs = await until(
        async () => hooks.seqs('/hook', runId),
        (sent) => sent.includes(last),
      );
      expect([...new Set(seqs)]).toEqual(upTo(last));
    }
    isOver = true;
    await sweeping;
  });

  test('of an endpoint that was removed go with it', async () => {
    const { id } = await hooks.save('/hook');
    await hooks.makeRun();
    await hooks.deliver();
    await deleteWebhookEndpoint(hooks.db, hooks.world.home.viewer, id);
    expect(await sweepCursors(hooks.db)).toMatchObject({ swept: 1 });
    expect(await cursors()).toEqual([]);
  });

  test('a clock that ran ahead delays nothing for long', async () => {
    await hooks.save('/hook');
    const runId = await hooks.makeRun();
    await hooks.query(
      `INSERT INTO webhook_cursor (endpoint_id, run_id, next_attempt_at, waiting_since, lease_until)
       SELECT id, $1, now() + interval '1 year', now(), now() + interval '1 year' FROM webhook_endpoint`,
      [runId],
    );
    await hooks.query(`UPDATE webhook_endpoint SET next_attempt_at = now() + interval '1 year'`);
    await hooks.deliver();
    expect(hooks.receiver.received).toEqual([]);
    await mendTimes(hooks.db);
    await hooks.deliver();
    expect(hooks.seqs('/hook', runId)).toEqual([1, 2]);
    // By less: still longer than any lease.
    await hooks.write(runId, 1);
    await hooks.query(
      `UPDATE webhook_cursor SET next_attempt_at = now(), waiting_since = now(), lease_until = now() + interval '5 minutes'`,
    );
    await mendTimes(hooks.db);
    await hooks.deliver();
    expect(hooks.seqs('/hook', runId)).toEqual([1, 2, 3]);
  });
});
