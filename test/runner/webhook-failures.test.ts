// Endpoints that hang, fail or are gone: nothing else is delayed, nothing is lost.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { SecretBox } from '../../src/store/secret-box.js';
import { switchWebhookEndpoint } from '../../src/store/webhook-endpoint.js';
import { listWaitingRuns, replayWebhook } from '../../src/store/webhook-replay.js';
import { until } from '../support/app.js';
import { SECRET, seqsOf, upTo, WebhookWorld } from './webhook-world.js';

let hooks: WebhookWorld;

beforeEach(async () => {
  hooks = await WebhookWorld.open();
});
afterEach(() => hooks.close());

/** How long the endpoint is given, by the database's clock. */
async function waitMs(name: string): Promise<number> {
  const [row] = await hooks.query(
    `SELECT 1000 * extract(epoch FROM next_attempt_at - last_error_at)::float8 AS ms FROM webhook_endpoint WHERE name = $1`,
    [name],
  );
  return row!['ms'] as number;
}

describe('an endpoint that fails', () => {
  test('is tried again by itself until it takes it, every time with the same delivery', async () => {
    await hooks.startDeliverer();
    await hooks.save('/hook');
    hooks.receiver.answers.set('/hook', 500);
    const runId = await hooks.makeRun();
    await until(
      async () => hooks.receiver.at('/hook').length,
      (count) => count >= 3,
    );
    // What comes meanwhile is no part of the delivery that is being tried.
    await hooks.write(runId, 2);
    hooks.receiver.answers.delete('/hook');
    await until(
      async () => hooks.seqs('/hook', runId),
      (seqs) => seqs.at(-1) === 4,
    );
    const ids = hooks.receiver.at('/hook').map(({ body }) => body.id as string);
    expect(ids.slice(0, -1).every((id) => id === `${runId}:1-2`)).toBe(true);
    expect(ids.at(-1)).toBe(`${runId}:3-4`);
    const healthy = await until(
      () => hooks.endpoint('/hook'),
      ({ waitingRuns }) => waitingRuns === 0,
    );
    const [run] = await hooks.query('SELECT correlation_id FROM rule_run');
    expect(hooks.log.entries[0]!.details).toMatchObject({ runId, correlationId: run!['correlation_id'] });
    expect(healthy).toMatchObject({
      failures: 0,
      failingSince: null,
      lastError: 'HTTP 500 Internal Server Error',
    });
  });

  test('is given more time with each failure, up to a cap, and what it asks for', async () => {
    const retry = {
      baseMs: 1000,
      maxMs: 10_000,
      jitter: 0.2,
      multiplier: 2,
      throttleBaseMs: 4000,
      maxAttempts: 1,
    };
    await hooks.save('/hook');
    await hooks.makeRun();
    hooks.receiver.answers.set('/hook', 500);
    const waits: number[] = [];
    for (let failure = 1; failure <= 6; failure += 1) {
      await hooks.deliver({ retry });
      waits.push(await waitMs('/hook'));
      // Not due: it is left alone.
      await hooks.deliver({ retry });
      expect(hooks.receiver.received).toHaveLength(failure);
      await hooks.makeDue();
    }
    const expected = [1000, 2000, 4000, 8000, 10_000, 10_000];
    waits.forEach((ms, index) => {
      expect(ms).toBeGreaterThan(expected[index]! * 0.79);
      expect(ms).toBeLessThan(expected[index]! * 1.21);
    });
    hooks.receiver.answers.set('/hook', 429);
    hooks.receiver.headers = { 'retry-after': '120' };
    await hooks.deliver({ retry });
    expect(await waitMs('/hook')).toBeCloseTo(120_000, -3);
    hooks.receiver.headers = { 'retry-after': '999999' };
    await hooks.makeDue();
    await hooks.deliver({ retry });
    expect(await waitMs('/hook')).toBeCloseTo(3_600_000, -3);
    expect(await hooks.endpoint('/hook')).toMatchObject({ failures: 8, enabled: true, waitingRuns: 1 });
  });

  test('is tried with one run at a time, and gets all of them once it is well', async () => {
    await hooks.save('/hook');
    const runIds = await Promise.all(Array.from({ length: 30 }, () => hooks.makeRun()));
    hooks.receiver.answers.set('/hook', 'hang');
    await hooks.deliver({ timeoutMs: 1_500 });
    expect(hooks.receiver.received).toHaveLength(4);
    await hooks.makeDue();
    await hooks.deliver({ timeoutMs: 1_500 });
    // All four were one failure; then one try was enough.
    expect(hooks.receiver.received).toHaveLength(5);
    expect(await hooks.endpoint('/hook')).toMatchObject({
      failures: 2,
      lastError: 'no answer within 1500 ms',
      waitingRuns: 30,
      waitingEvents: 60,
      waitingSince: expect.any(Date) as Date,
    });
    const before = hooks.receiver.received.length;
    hooks.receiver.answers.delete('/hook');
    await hooks.makeDue();
    await hooks.deliver();
    const after = hooks.receiver.received.slice(before);
    for (const runId of runIds) expect(seqsOf(after, runId)).toEqual([1, 2]);
  });

  test('for one run only goes on with the others; that run can be helped past its line', async () => {
    const { id } = await hooks.save('/hook', { batchSize: 1 });
    const poison = await hooks.makeRun();
    hooks.receiver.refuse = ({ body }) => body.run.id === poison && body.events[0].seq === 2;
    await hooks.deliver();
    await hooks.write(poison, 1);
    await hooks.makeDue();
    await hooks.deliver();
    const other = await hooks.makeRun();
    await hooks.query('UPDATE webhook_endpoint SET next_attempt_at = now()');
    await hooks.deliver();
    expect(hooks.seqs('/hook', other)).toEqual([1, 2]);
    expect(hooks.seqs('/hook', poison)).toEqual([1, 2, 2]);
    const { viewer } = hooks.world.home;
    expect(await listWaitingRuns(hooks.db, viewer, id, 10)).toMatchObject([
      {
        runId: poison,
        kind: 'RULE',
        deliveredSeq: 1,
        lastSeq: 3,
        failures: 2,
        error: 'HTTP 422 Unprocessable Entity',
      },
    ]);
    expect(await hooks.endpoint('/hook')).toMatchObject({ failures: 0, enabled: true });
    await replayWebhook(hooks.db, viewer, { endpointId: id, runId: poison, afterSeq: 2 });
    await hooks.deliver();
    expect(hooks.seqs('/hook', poison)).toEqual([1, 2, 2, 3]);
    expect(await listWaitingRuns(hooks.db, viewer, id, 10)).toEqual([]);
  });
});

describe('an endpoint that fails and is saved again', () => {
  let id: string;
  let runId: string;
  beforeEach(async () => {
    ({ id } = await hooks.save('/typo'));
    runId = await hooks.makeRun();
    hooks.receiver.answers.set('/typo', 404);
    await hooks.deliver();
    expect(await waitMs('/typo')).toBeGreaterThan(60_000);
    hooks.receiver.received.length = 0;
  });

  test('is tried at once after it is saved with another address', async () => {
    const url = hooks.receiver.url('/right');
    expect(await hooks.save('/typo', { id, url })).toMatchObject({ failures: 0, failingSince: null });
    await hooks.deliver();
    expect(hooks.seqs('/right', runId)).toEqual([1, 2]);
  });

  test('is tried at once after it is saved with another secret', async () => {
    hooks.receiver.answers.delete('/typo');
    await hooks.save('/typo', { id, secret: `${SECRET}-and-another` });
    await hooks.deliver();
    expect(hooks.seqs('/typo', runId)).toEqual([1, 2]);
  });

  test.each([404, 410])(
    'is tried at once though the former address answers %i to a try under way',
    async (status) => {
      const { receiver } = hooks;
      await hooks.makeDue();
      receiver.answers.set('/typo', 'hang');
      const trying = hooks.deliver();
      await until(
        async () => receiver.at('/typo').length,
        (count) => count === 1,
      );
      await hooks.save('/typo', { id, url: receiver.url('/right') });
      receiver.release(status);
      await trying;
      expect(await hooks.endpoint('/typo')).toMatchObject({ enabled: true, failures: 0 });
      await hooks.deliver();
      expect(hooks.seqs('/right', runId)).toEqual([1, 2]);
    },
  );

  test('waits where it was when nothing of that was changed, or it is off', async () => {
    expect(await hooks.save('/typo', { id, secret: null, batchSize: 7 })).toMatchObject({ failures: 1 });
    await hooks.deliver();
    const url = hooks.receiver.url('/right');
    expect(await hooks.save('/typo', { id, url, enabled: false })).toMatchObject({ enabled: false });
    expect(await hooks.save('/typo', { id, url: hooks.receiver.url('/off') })).toMatchObject({
      enabled: false,
      failures: 1,
    });
    await hooks.deliver();
    expect(hooks.receiver.received).toEqual([]);
  });
});

test('twenty endpoints that hang delay no other', async () => {
  await hooks.startDeliverer({ timeoutMs: 60_000 });
  for (let index = 0; index < 20; index += 1) {
    await hooks.save(`/hang-${index}`);
    hooks.receiver.answers.set(`/hang-${index}`, 'hang');
  }
  await hooks.save('/well');
  const runIds = await Promise.all(Array.from({ length: 5 }, () => hooks.makeRun()));
  // Eighty requests hang by then: four of each.
  await until(
    async () => hooks.receiver.received.filter(({ path }) => path.startsWith('/hang')).length,
    (count) => count === 80,
  );
  for (const runId of runIds) {
    await hooks.write(runId, 3);
    await until(
      async () => hooks.seqs('/well', runId),
      (seqs) => seqs.at(-1) === 5,
    );
    expect(hooks.seqs('/well', runId)).toEqual(upTo(5));
  }
});

describe('the switch', () => {
  const die = async () => {
    await hooks.query(`UPDATE webhook_endpoint SET failing_since = now() - interval '3 hours'`);
    await hooks.makeDue();
    await hooks.deliver();
  };

  test('turns a dead endpoint off, says why, keeps its place, and on again it loses nothing', async () => {
    const { id } = await hooks.save('/hook', { deadAfterHours: 2, deadAfterFailures: 3 });
    const runId = await hooks.makeRun();
    hooks.receiver.answers.set('/hook', 500);
    await hooks.deliver();
    // Long enough, but too few failures: a clock may have jumped.
    await die();
    expect(await hooks.endpoint('/hook')).toMatchObject({ enabled: true, failures: 2 });
    await die();
    expect(await hooks.endpoint('/hook')).toMatchObject({
      enabled: false,
      disabledAt: expect.any(Date) as Date,
      disabledReason: expect.stringMatching(
        /^3 failures in a row since .*Z; the last: HTTP 500 Internal Server Error$/,
      ) as string,
    });
    expect(hooks.log.entries.filter(({ level }) => level === 'error')).toMatchObject([
      { message: 'a webhook endpoint was switched off; its place is kept', details: { name: '/hook' } },
    ]);
    hooks.receiver.answers.delete('/hook');
    await hooks.write(runId, 2);
    const meanwhile = await hooks.makeRun();
    await hooks.cancel(meanwhile);
    await hooks.makeDue();
    await hooks.deliver();
    expect(hooks.receiver.received).toHaveLength(3);
    const revived = await switchWebhookEndpoint(hooks.db, hooks.world.home.viewer, id, true);
    expect(revived).toMatchObject({ enabled: true, disabledAt: null, disabledReason: null, failures: 0 });
    await hooks.deliver();
    const after = hooks.receiver.received.slice(3);
    expect(seqsOf(after, runId)).toEqual([1, 2, 3, 4]);
    expect(seqsOf(after, meanwhile)).toEqual(upTo(await hooks.lastSeq(meanwhile)));
  });

  test('many failures within a short time do not turn it off', async () => {
    await hooks.save('/hook', { deadAfterHours: 1, deadAfterFailures: 1 });
    await hooks.makeRun();
    hooks.receiver.answers.set('/hook', 500);
    for (let failure = 0; failure < 5; failure += 1) {
      await hooks.makeDue();
      await hooks.deliver();
    }
    expect(await hooks.endpoint('/hook')).toMatchObject({ enabled: true, failures: 5 });
  });

  test('a receiver turns itself off by 410 Gone', async () => {
    await hooks.save('/hook');
    await hooks.makeRun();
    hooks.receiver.answers.set('/hook', 410);
    await hooks.deliver();
    expect(await hooks.endpoint('/hook')).toMatchObject({
      enabled: false,
      disabledReason: 'it answered 410 Gone',
      waitingRuns: 1,
    });
  });

  test('by hand, off and on', async () => {
    const { viewer } = hooks.world.home;
    const { id } = await hooks.save('/hook');
    expect(await switchWebhookEndpoint(hooks.db, viewer, id, false)).toMatchObject({
      enabled: false,
      disabledReason: 'switched off by key:default',
    });
    const runId = await hooks.makeRun();
    await hooks.deliver();
    expect(hooks.receiver.received).toEqual([]);
    await hooks.save('/hook', { id, enabled: true });
    await hooks.deliver();
    expect(hooks.seqs('/hook', runId)).toEqual([1, 2]);
  });
});

test('secrets that cannot be opened are a failure that says so, and nothing is sent unsigned', async () => {
  await hooks.save('/hook');
  await hooks.makeRun();
  await hooks.deliver({ secrets: new SecretBox([SecretBox.generateKey()]) });
  expect(hooks.receiver.received).toEqual([]);
  const { lastError } = await hooks.endpoint('/hook');
  expect(lastError).toContain('is not in RUNLEDGER_SECRET_KEY');
  expect(JSON.stringify(hooks.log.entries)).not.toContain('a-secret-of-some-length');
});
