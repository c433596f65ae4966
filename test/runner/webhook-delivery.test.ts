// Webhooks from the ledger to the receiver's door: signed, each line once and in order, from the right place on.
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { opsRunMachine } from '../../src/domain/ops-run.js';
import { pipelineRunMachine } from '../../src/domain/pipeline-run.js';
import { appendRunLines } from '../../src/store/ledger.js';
import { testWebhookEndpoint } from '../../src/store/webhook-endpoint.js';
import { until } from '../support/app.js';
import { makeRow, makeRuleRun } from '../support/fixtures.js';
import { SECRET, upTo, WebhookWorld } from './webhook-world.js';

let hooks: WebhookWorld;

beforeEach(async () => {
  hooks = await WebhookWorld.open();
});
afterEach(() => hooks.close());

type Check = (secret: string, header: unknown, body: string) => boolean;

/** The check that the guide gives to receivers, as it stands there. */
let isFromRunledger: Check;
beforeAll(async () => {
  const guide = fileURLToPath(new URL('../../docs/guides/webhooks.md', import.meta.url));
  const [, code] = /```js\n([^]*?)```/.exec(await readFile(guide, 'utf8'))!;
  const module = `data:text/javascript,${encodeURIComponent(code!)}`;
  ({ isFromRunledger } = (await import(/* @vite-ignore */ module)) as { isFromRunledger: Check });
});

describe('what is sent', () => {
  test('the lines of a run, signed, with names that stay the same', async () => {
    await hooks.save('/hook');
    const runId = await hooks.makeRun();
    await hooks.deliver();
    const [sent] = hooks.receiver.at('/hook');
    expect(hooks.receiver.received).toHaveLength(1);
    expect(sent!.body).toMatchObject({
      id: `${runId}:1-2`,
      type: 'run.events',
      tenantId: 'default',
      run: { id: runId, kind: 'RULE', projectId: 'default' },
      events: [
        { id: `${runId}:1`, seq: 1, type: 'rule_run.create', level: 'INFO', actor: 'key:default' },
        { id: `${runId}:2`, seq: 2, type: 'rule_run.add_targets', payload: { count: 3 } },
      ],
    });
    expect(sent!.headers['x-runledger-delivery']).toBe(`${runId}:1-2`);
    const signature = sent!.headers['x-runledger-signature'];
    expect(isFromRunledger(SECRET, signature, sent!.text)).toBe(true);
    expect(isFromRunledger('another-secret-of-some-length', signature, sent!.text)).toBe(false);
    expect(isFromRunledger(SECRET, signature, sent!.text.replace('RULE', 'OPS'))).toBe(false);
    const older = String(signature).replace(/t=\d+/, 't=1700000000');
    for (const wrong of ['', 'v1', 't=,v1=', older]) {
      expect(isFromRunledger(SECRET, wrong, sent!.text)).toBe(false);
    }
    await hooks.deliver();
    expect(hooks.receiver.received).toHaveLength(1);
  });

  test('a new secret and, for a day, the one before', async () => {
    const { id } = await hooks.save('/hook');
    const next = 'the-next-secret-of-some-length';
    await hooks.save('/hook', { id, secret: next });
    await hooks.makeRun();
    await hooks.deliver();
    await hooks.query(
      `UPDATE webhook_endpoint SET config = jsonb_set(config, '{formerSecretUntil}', '"2020-01-01T00:00:00.000Z"')`,
    );
    await hooks.makeRun();
    await hooks.deliver();
    const [first, second] = hooks.receiver.received;
    const signedWith = (received: typeof first, secret: string) =>
      isFromRunledger(secret, received!.headers['x-runledger-signature'], received!.text);
    expect([signedWith(first, next), signedWith(first, SECRET)]).toEqual([true, true]);
    expect([signedWith(second, next), signedWith(second, SECRET)]).toEqual([true, false]);
    // A change that brings no secret keeps it.
    await hooks.save('/hook', { id, secret: null });
    await hooks.makeRun();
    await hooks.deliver();
    expect(signedWith(hooks.receiver.received[2], next)).toBe(true);
  });

  test('every kind of run, to each tenant its own', async () => {
    const { home, other } = hooks.world;
    await hooks.save('/all');
    await hooks.save('/foreign', {}, other);
    const pipeline = await makeRow(hooks.db, home, pipelineRunMachine);
    const ops = await makeRow(hooks.db, home, opsRunMachine);
    const theirs = await hooks.makeRun(other);
    await hooks.deliver();
    const runs = (path: string) => hooks.receiver.at(path).map(({ body }) => body.run.id as string);
    expect(runs('/all').sort()).toEqual([pipeline.runId, `run-${ops.runId}`].sort());
    expect(runs('/foreign')).toEqual([theirs]);
  });

  test('what was chosen by kind, project and type; the rest is passed over', async () => {
    await hooks.save('/ops', { kinds: ['OPS'] });
    await hooks.save('/project', { projectId: 'spring' });
    await hooks.save('/types', { eventTypes: ['rule_run.add_targets', 'warn_*'] });
    const runId = await hooks.makeRun();
    const { id: spring } = await makeRuleRun(hooks.db, hooks.world.home, { projectId: 'spring' });
    await hooks.write(runId, 1, 'warn_a');
    // An underscore is no wildcard, and a type must begin so.
    await hooks.write(runId, 1, 'warnXa');
    await hooks.write(runId, 1, 'a_warn_a');
    await hooks.deliver();
    expect(hooks.receiver.at('/ops')).toEqual([]);
    expect(hooks.seqs('/project', spring)).toEqual([1, 2]);
    expect(hooks.seqs('/project', runId)).toEqual([]);
    expect(hooks.seqs('/types', runId)).toEqual([2, 3]);
    expect(await hooks.endpoint('/types')).toMatchObject({
      waitingRuns: 0,
      waitingEvents: 0,
      waitingSince: null,
    });
  });

  test('many lines in requests of the size that was asked for', async () => {
    await hooks.save('/hook', { batchSize: 10 });
    const runId = await hooks.makeRun();
    await hooks.write(runId, 23);
    await hooks.deliver();
    expect(hooks.receiver.received.map(({ body }) => body.events.length)).toEqual([10, 10, 5]);
    expect(hooks.seqs('/hook', runId)).toEqual(upTo(25));
  });

  test('long lines in requests of a bounded size', async () => {
    await hooks.save('/hook');
    const runId = await hooks.makeRun();
    const long = { type: 'log', level: 'INFO', message: 'x'.repeat(100_000), payload: {} } as const;
    await hooks.db.transaction('test', (connection) =>
      appendRunLines(
        connection,
        'RULE',
        runId,
        Array.from({ length: 8 }, () => long),
      ),
    );
    await hooks.deliver();
    expect(hooks.seqs('/hook', runId)).toEqual(upTo(10));
    for (const { text } of hooks.receiver.received) expect(text.length).toBeLessThan(300_000);
  });
});

describe('where it begins', () => {
  test('a new endpoint with what comes after it, also of a run that is open or had ended', async () => {
    const open = await hooks.makeRun();
    const ended = await hooks.makeRun();
    await hooks.cancel(ended);
    const from = (await hooks.lastSeq(ended)) + 1;
    await hooks.save('/hook');
    await hooks.deliver();
    expect(hooks.receiver.received).toEqual([]);
    await hooks.write(open, 1);
    await hooks.write(ended, 2);
    await hooks.deliver();
    expect(hooks.seqs('/hook', open)).toEqual([3]);
    expect(hooks.seqs('/hook', ended)).toEqual([from, from + 1]);
  });

  test('one that is to be sent more goes on where it was, and begins with what comes elsewhere', async () => {
    const { id } = await hooks.save('/hook', { projectId: 'spring' });
    const elsewhere = await hooks.makeRun();
    // Nobody has looked at this one yet when the endpoint is changed.
    const { id: spring } = await makeRuleRun(hooks.db, hooks.world.home, { projectId: 'spring' });
    await hooks.save('/hook', { id });
    await hooks.write(elsewhere, 1);
    await hooks.deliver();
    expect(hooks.seqs('/hook', spring)).toEqual([1, 2]);
    expect(hooks.seqs('/hook', elsewhere)).toEqual([3]);
  });

  test('a run that begins and ends between two looks is sent whole', async () => {
    await hooks.save('/hook');
    const runId = await hooks.makeRun();
    await hooks.cancel(runId);
    await hooks.deliver();
    expect(hooks.seqs('/hook', runId)).toEqual(upTo(await hooks.lastSeq(runId)));
  });

  test('a run that was made in a transaction older than the endpoint is sent whole', async () => {
    let made!: string;
    await hooks.db.transaction('test', async (connection) => {
      const { rows } = await connection.query<{ id: string }>(
        `INSERT INTO ops_run (tenant_id, project_id, env) VALUES ('default', 'p', 'e') RETURNING id`,
      );
      made = rows[0]!.id;
      await hooks.save('/hook');
    });
    await hooks.deliver();
    expect(hooks.seqs('/hook', `run-${made}`)).toEqual([1]);
  });
});

describe('order', () => {
  test('holds per run under concurrent writers and two deliverers, nothing twice', async () => {
    await hooks.startDeliverer();
    await hooks.startDeliverer();
    await hooks.save('/a', { batchSize: 7 });
    await hooks.save('/b', { batchSize: 50 });
    const runIds = await Promise.all(Array.from({ length: 6 }, () => hooks.makeRun()));
    await Promise.all(
      runIds.flatMap((runId) =>
        [1, 2].map(async () => {
          for (let round = 0; round < 25; round += 1) await hooks.write(runId, 1 + (round % 5));
        }),
      ),
    );
    for (const path of ['/a', '/b']) {
      for (const runId of runIds) {
        const last = await hooks.lastSeq(runId);
        await until(
          async () => hooks.seqs(path, runId),
          (seqs) => seqs.at(-1) === last,
        );
        expect(hooks.seqs(path, runId)).toEqual(upTo(last));
      }
    }
  });

  test('a bell brings a line within a moment', async () => {
    await hooks.startDeliverer();
    await hooks.save('/hook');
    const runId = await hooks.makeRun();
    // No backstop runs here: only the bell can have told of it.
    await until(
      async () => hooks.seqs('/hook', runId),
      (seqs) => seqs.length === 2,
    );
  });
});

test('a ping is sent once, to an endpoint that is off too, and its answer is kept', async () => {
  const { viewer } = hooks.world.home;
  const { id } = await hooks.save('/hook', { enabled: false });
  await testWebhookEndpoint(hooks.db, viewer, id);
  await hooks.deliver();
  await hooks.deliver();
  expect(hooks.receiver.received.map(({ body }) => body)).toMatchObject([{ type: 'ping', id: `ping:${id}` }]);
  expect(await hooks.endpoint('/hook')).toMatchObject({
    pingedAt: expect.any(Date) as Date,
    pingError: null,
  });
  hooks.receiver.answers.set('/hook', 503);
  await testWebhookEndpoint(hooks.db, viewer, id);
  await hooks.deliver();
  expect(await hooks.endpoint('/hook')).toMatchObject({
    pingError: 'HTTP 503 Service Unavailable',
    failures: 0,
  });
});
