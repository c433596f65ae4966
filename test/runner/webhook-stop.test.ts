// Deliverers that are cut short, by a stop, a kill or a long sleep: nothing is lost, and no run is sent by two at once.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { claimRuns, noticeNews } from '../../src/store/webhook-cursor.js';
import { settleRefused, settleTaken } from '../../src/store/webhook-settle.js';
import { ServerProcess } from '../support/app.js';
import { seqsOf, upTo, WebhookWorld } from './webhook-world.js';

let hooks: WebhookWorld;
let server: ServerProcess | null = null;

beforeEach(async () => {
  hooks = await WebhookWorld.open();
});
afterEach(async () => {
  await server?.end('SIGKILL');
  await hooks.close();
});

describe('a deliverer that is cut short', () => {
  test('by a stop ends what is answered in time', async () => {
    await hooks.save('/hook');
    await hooks.makeRun();
    hooks.receiver.answers.set('/hook', 'hang');
    const delivery = hooks.deliverer({}, 60_000);
    delivery.start();
    await hooks.receiver.next();
    const stopping = delivery.stop();
    hooks.receiver.release();
    await stopping;
    expect(await hooks.endpoint('/hook')).toMatchObject({
      waitingRuns: 0,
      lastDeliveredAt: expect.any(Date) as Date,
    });
  });

  test('by a stop hands back the rest, and no failure is counted', async () => {
    await hooks.save('/hook');
    const runId = await hooks.makeRun();
    hooks.receiver.answers.set('/hook', 'hang');
    const delivery = hooks.deliverer({ timeoutMs: 60_000 });
    delivery.start();
    await hooks.receiver.next();
    await delivery.stop();
    expect(await hooks.endpoint('/hook')).toMatchObject({ failures: 0, lastError: null, waitingRuns: 1 });
    hooks.receiver.answers.delete('/hook');
    await hooks.deliver();
    expect(hooks.seqs('/hook', runId)).toEqual([1, 2, 1, 2]);
  });

  test('by kill -9 between the delivery and the cursor repeats the delivery, and loses nothing', async () => {
    await hooks.save('/hook');
    hooks.receiver.answers.set('/hook', 'hang');
    server = await ServerProcess.spawn(hooks.database.url, {
      RUNLEDGER_SECRET_KEY: hooks.secretKey,
      RUNLEDGER_SANDBOX: 'off',
    });
    const arrived = hooks.receiver.next();
    const runId = await hooks.makeRun();
    await arrived;
    await server.end('SIGKILL');
    await hooks.write(runId, 3);
    hooks.receiver.answers.delete('/hook');
    // Its lease holds: nobody sends it beside one who may still be at it.
    await hooks.deliver();
    expect(hooks.receiver.received).toHaveLength(1);
    await hooks.makeDue();
    await hooks.deliver();
    const [first, again, rest] = hooks.receiver.received;
    expect(again!.body).toEqual(first!.body);
    expect(again!.headers['x-runledger-delivery']).toBe(first!.headers['x-runledger-delivery']);
    const sent = first!.body.events.length as number;
    expect(seqsOf([again!, rest!], runId)).toEqual(upTo(5));
    expect(rest!.body.events[0].seq).toBe(sent + 1);
    expect(hooks.receiver.received).toHaveLength(3);
  });

  test('and comes back late changes nothing', async () => {
    await hooks.save('/hook');
    const runId = await hooks.makeRun();
    await noticeNews(hooks.db, null);
    const request = { failing: false, limit: 10, perEndpoint: 4, underWay: new Map<string, number>() };
    const [late] = await claimRuns(hooks.db, request);
    expect(await claimRuns(hooks.db, request)).toEqual([]);
    await hooks.makeDue();
    await hooks.deliver();
    await hooks.write(runId, 2);
    await settleTaken(hooks.db, late!, 4);
    await settleRefused(hooks.db, late!, 'late', 60_000);
    await hooks.deliver();
    expect(hooks.seqs('/hook', runId)).toEqual([1, 2, 3, 4]);
  });
});
