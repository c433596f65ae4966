// Alerts from the evaluation to the sink's door: told in order, until it is taken, and nobody waits for a sink
// that does not answer.
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { SMTPServer } from 'smtp-server';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { ALERT_SINK_KINDS, openAlertSink } from '../../src/connectors/alert-sink/registry.js';
import type { AlertSeverity } from '../../src/domain/alert.js';
import { AlertDelivery, AlertEvaluation } from '../../src/runner/alert-jobs.js';
import { deleteAlertSink, listAlertSinks, saveAlertSink, testAlertSink } from '../../src/store/alert-sink.js';
import { SecretBox } from '../../src/store/secret-box.js';
import { faultOf } from '../store/rows.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeFailedRun, seedWorld, targetsOf, type World } from '../support/fixtures.js';
import { Receiver } from '../support/receiver.js';
import { until } from '../support/app.js';
import { KeptLog } from './support.js';

const NEVER = new AbortController().signal;
const secrets = new SecretBox([SecretBox.generateKey()]);

let database: TestDatabase;
let world: World;
let receiver: Receiver;
let log: KeptLog;

beforeEach(async () => {
  database = await createTestDatabase();
  world = await seedWorld(database.db);
  receiver = await Receiver.start();
  log = new KeptLog();
});
afterEach(async () => {
  await receiver.stop();
  await database.drop();
});

const query = (sql: string, values: unknown[] = []) => database.db.query(sql, values);
const evaluate = () => new AlertEvaluation({ db: database.db, log }).run();
const deliver = (signal = NEVER, graceMs = 50) =>
  new AlertDelivery({ db: database.db, secrets, openSink: openAlertSink, log, graceMs }).run(signal);

function saveSink(path: string, severities: AlertSeverity[] = ['WARNING', 'CRITICAL'], tenant = world.home) {
  return saveAlertSink(database.db, secrets, tenant.viewer, ALERT_SINK_KINDS, {
    id: null,
    name: path,
    kind: 'WEBHOOK',
    config: { url: receiver.url(path), secret: 'a-secret-of-some-length' },
    severities,
    enabled: true,
  });
}

/** A burst of 429 fires; as long ago it does not. */
async function fireBurst(): Promise<void> {
  await query(
    `INSERT INTO channel_throttle (tenant_id, channel_id, count)
     SELECT tenant_id, id, 4 FROM channel WHERE tenant_id = 'default'`,
  );
  await evaluate();
}
async function endBurst(): Promise<void> {
  await query(`UPDATE channel_throttle SET at = at - interval '10 minutes'`);
  await evaluate();
}
const makeDue = () =>
  query('UPDATE alert_notice SET next_attempt_at = now() WHERE next_attempt_at IS NOT NULL');

test('what fires and resolves is logged, sink or no sink', async () => {
  await fireBurst();
  await endBurst();
  expect(log.entries.map(({ level, message }) => [level, message])).toEqual([
    ['warn', 'alert: 4 times 429 within 5 minutes, more than 3'],
    ['info', 'alert resolved: 4 times 429 within 5 minutes, more than 3'],
  ]);
});

test('each sink is told once, of what it is for', async () => {
  await saveSink('/all');
  await saveSink('/critical', ['CRITICAL']);
  await saveSink('/foreign', ['WARNING'], world.other);
  await fireBurst();
  await deliver();
  await evaluate();
  await deliver();
  await endBurst();
  await deliver();
  expect(receiver.received.map(({ path, body }) => [path, body.alert.event])).toEqual([
    ['/all', 'FIRED'],
    ['/all', 'RESOLVED'],
  ]);
  expect(await listAlertSinks(database.db, world.home.viewer)).toMatchObject([
    { name: '/all', waiting: 0, lastError: null, lastDeliveredAt: expect.any(Date) as Date },
    { name: '/critical', waiting: 0, lastDeliveredAt: null },
  ]);
});

test('a notice, also of a test, has a name that no other installation gives to one of its own', async () => {
  const { id } = await saveSink('/named');
  await fireBurst();
  await testAlertSink(database.db, world.home.viewer, id);
  await deliver();
  const told = receiver.at('/named');
  expect(told.map(({ body }) => body.alert.event).sort()).toEqual(['FIRED', 'TEST']);
  for (const { headers } of told) expect(headers['x-runledger-delivery']).toContain(id);
  const ping = told.find(({ body }) => body.alert.event === 'TEST')!;
  // PagerDuty makes one incident of all that come under one name.
  expect(ping.body.alert.alertId).toContain(id);
});

describe('a sink that fails', () => {
  test('is tried again, in order, and loses nothing', async () => {
    receiver.answers.set('/down', 500);
    await saveSink('/down');
    await fireBurst();
    await deliver();
    await endBurst();
    await deliver();
    // The first has not been taken, and is not due yet: the second waits behind it.
    expect(receiver.received).toHaveLength(1);
    await makeDue();
    await deliver();
    expect(await listAlertSinks(database.db, world.home.viewer)).toMatchObject([
      { waiting: 2, lastError: 'HTTP 500 Internal Server Error', lastDeliveredAt: null },
    ]);
    receiver.answers.delete('/down');
    await makeDue();
    await deliver();
    expect(receiver.received.map(({ body }) => body.alert.event)).toEqual([
      'FIRED',
      'FIRED',
      'FIRED',
      'RESOLVED',
    ]);
    expect(
      new Set(receiver.received.slice(0, 3).map(({ headers }) => headers['x-runledger-delivery'])).size,
    ).toBe(1);
    expect(await listAlertSinks(database.db, world.home.viewer)).toMatchObject([
      { waiting: 0, lastError: null },
    ]);
  });

  test('is not forgotten when a clock that had run ahead is put right', async () => {
    await saveSink('/later');
    await fireBurst();
    await query(`UPDATE alert_notice SET next_attempt_at = next_attempt_at + interval '1 year'`);
    await deliver();
    expect(receiver.received.map(({ path }) => path)).toEqual(['/later']);
  });

  test('for a day is told all of it, in order, when it is back', async () => {
    receiver.answers.set('/down', 500);
    await saveSink('/down');
    await fireBurst();
    await endBurst();
    await query(`UPDATE alert_notice SET created_at = created_at - interval '1 day', attempts = 100`);
    await deliver();
    const [waiting] = await query(
      `SELECT extract(epoch FROM next_attempt_at - now()) AS seconds FROM alert_notice WHERE attempts = 101`,
    );
    expect(Number(waiting!['seconds'])).toBeLessThanOrEqual(900);
    receiver.answers.delete('/down');
    receiver.received.length = 0;
    await makeDue();
    await deliver();
    expect(receiver.received.map(({ body }) => body.alert.event)).toEqual(['FIRED', 'RESOLVED']);
  });

  test('by repeating a secret that it was sent does not make it readable', async () => {
    receiver.answers.set('/v2/enqueue', 'echo');
    const routingKey = 'R0123456789ABCDEF0123456789ABCDEF';
    const { id } = await saveAlertSink(database.db, secrets, world.home.viewer, ALERT_SINK_KINDS, {
      id: null,
      name: 'pager',
      kind: 'PAGERDUTY',
      config: { routingKey, url: receiver.url('/v2/enqueue') },
      severities: ['CRITICAL'],
      enabled: true,
    });
    await testAlertSink(database.db, world.home.viewer, id);
    await deliver();
    const [sink] = await listAlertSinks(database.db, world.home.viewer);
    expect(receiver.received[0]!.text).toContain(routingKey);
    expect(sink!.lastError).toBe('HTTP 500 Internal Server Error');
    expect(JSON.stringify(sink)).not.toContain(routingKey);
  });

  test('is not given up by a clock that leaps over the days', async () => {
    receiver.answers.set('/down', 500);
    await saveSink('/down');
    await fireBurst();
    await query(`UPDATE alert_notice SET created_at = created_at - interval '400 days', attempts = 5`);
    await deliver();
    expect(await query('SELECT next_attempt_at IS NOT NULL AS waits FROM alert_notice')).toEqual([
      { waits: true },
    ]);
  });

  test('for days is given up, loudly', async () => {
    receiver.answers.set('/down', 500);
    await saveSink('/down');
    await fireBurst();
    await query(`UPDATE alert_notice SET created_at = created_at - interval '4 days', attempts = 300`);
    await deliver();
    expect(log.entries.at(-1)).toMatchObject({
      level: 'error',
      message: expect.stringContaining('given up') as string,
    });
    expect(await query('SELECT next_attempt_at, error FROM alert_notice')).toEqual([
      { next_attempt_at: null, error: 'HTTP 500 Internal Server Error' },
    ]);
  });

  test('that cannot be opened any more says why, and the others are told', async () => {
    const broken = await saveSink('/broken');
    await saveSink('/fine');
    const garbage = Buffer.alloc(64, 7).toString('base64');
    await query('UPDATE alert_sink SET secrets = $2 WHERE id = $1', [broken.id, garbage]);
    await fireBurst();
    await deliver();
    expect(receiver.received.map(({ path }) => path)).toEqual(['/fine']);
    const [sink] = await listAlertSinks(database.db, world.home.viewer);
    expect(sink!.lastError).toContain('cannot be decrypted');
  });

  test('by hanging keeps nobody waiting, and a stop ends it', async () => {
    receiver.answers.set('/hangs', 'hang');
    await saveSink('/hangs');
    await fireBurst();
    const stopping = new AbortController();
    const heard = receiver.next();
    const delivering = deliver(stopping.signal);
    await heard;
    // While the one hangs, another comes up and is told by the same run of the job.
    await saveSink('/quick');
    const quick = receiver.next();
    await query(
      `INSERT INTO alert_notice (tenant_id, sink_id, event) SELECT tenant_id, id, 'TEST' FROM alert_sink WHERE name = '/quick'`,
    );
    expect((await quick).path).toBe('/quick');
    await until(
      () => query('SELECT 1 FROM alert_notice WHERE delivered_at IS NOT NULL'),
      (told) => told.length === 1,
    );
    stopping.abort();
    await delivering;
    // Handed back, as if it had not been tried.
    expect(
      await query(
        `SELECT attempts, next_attempt_at > now() AS leased FROM alert_notice WHERE delivered_at IS NULL`,
      ),
    ).toEqual([{ attempts: 0, leased: false }]);
  });

  test('to answer before a stop is given a moment for it', async () => {
    receiver.answers.set('/slow', 'hang');
    await saveSink('/slow');
    await fireBurst();
    const stopping = new AbortController();
    const heard = receiver.next();
    const delivering = deliver(stopping.signal, 60_000);
    await heard;
    stopping.abort();
    receiver.release();
    await delivering;
    expect(await query('SELECT attempts, next_attempt_at FROM alert_notice')).toEqual([
      { attempts: 1, next_attempt_at: null },
    ]);
  });

  test('a notice for good has it given up after a few tries, and nothing critical waits for it', async () => {
    receiver.refuse = ({ body }) => body.alert.severity === 'WARNING';
    await saveSink('/picky');
    await fireBurst();
    await deliver();
    await makeFailedRun(database.db, world.home, { targets: targetsOf(101) });
    await evaluate();
    await deliver();
    const told = receiver.received.map(({ body }) => body.alert.policy);
    expect(told[0]).toBe('THROTTLE_BURST');
    expect(told.slice(1).sort()).toEqual(['CRITICAL_SUCCESS_RATE', 'DLQ_CRITICAL']);
    await query('UPDATE alert_notice SET attempts = 9 WHERE NOT urgent');
    await makeDue();
    await deliver();
    const given = () => log.entries.filter(({ message }) => message.includes('refuses a notice'));
    // It may be mended within the hour.
    expect(given()).toEqual([]);
    await query(`UPDATE alert_notice SET created_at = created_at - interval '61 minutes', attempts = 2`);
    await makeDue();
    await deliver();
    // Nor does a clock that leaps over the hour give it up.
    expect(given()).toEqual([]);
    await query('UPDATE alert_notice SET attempts = 9 WHERE NOT urgent');
    await makeDue();
    await deliver();
    expect(given()[0]).toMatchObject({
      level: 'error',
      details: { reason: 'HTTP 422 Unprocessable Entity', attempts: 10 },
    });
    expect(await query('SELECT urgent FROM alert_notice WHERE next_attempt_at IS NOT NULL')).toEqual([]);
  });

  test.each([401, 403, 404])(
    'with %i, as while it is deployed, has nothing given up for days',
    async (status) => {
      receiver.answers.set('/deployed', status);
      await saveSink('/deployed');
      await fireBurst();
      await query(`UPDATE alert_notice SET created_at = created_at - interval '1 day', attempts = 90`);
      await deliver();
      expect(await query('SELECT next_attempt_at IS NOT NULL AS waits FROM alert_notice')).toEqual([
        { waits: true },
      ]);
    },
  );

  test.each([
    [429, '120', 120],
    [503, '86400', 900],
    [429, '1', 5],
  ])('by %i with Retry-After: %s is tried again after %i s', async (status, retryAfter, seconds) => {
    receiver.answers.set('/busy', status);
    receiver.headers = { 'retry-after': retryAfter };
    await saveSink('/busy');
    await fireBurst();
    const [before] = await query('SELECT clock_timestamp() AS at');
    await deliver();
    const [row] = await query(
      `SELECT extract(epoch FROM next_attempt_at - $1)::float8 AS least,
         extract(epoch FROM next_attempt_at - clock_timestamp())::float8 AS most FROM alert_notice`,
      [before!['at']],
    );
    expect(Number(row!['least'])).toBeGreaterThanOrEqual(seconds);
    expect(Number(row!['most'])).toBeLessThanOrEqual(seconds);
  });

  test('is tried soon after it is saved again, and what is in hand is not tried twice', async () => {
    receiver.answers.set('/typo', 404);
    const { id } = await saveSink('/typo');
    await fireBurst();
    await query('UPDATE alert_notice SET attempts = 20');
    await deliver();
    const save = (path: string) =>
      saveAlertSink(database.db, secrets, world.home.viewer, ALERT_SINK_KINDS, {
        id,
        name: 'typo',
        kind: 'WEBHOOK',
        config: { url: receiver.url(path), secret: 'a-secret-of-some-length' },
        severities: ['WARNING'],
        enabled: true,
      });
    const waitsFor = async () => {
      const [row] = await query(
        'SELECT extract(epoch FROM next_attempt_at - now())::float8 AS seconds FROM alert_notice',
      );
      return Number(row!['seconds']);
    };
    expect(await waitsFor()).toBeGreaterThan(120);
    await save('/right');
    expect(await waitsFor()).toBeLessThanOrEqual(61);
    await query(`UPDATE alert_notice SET next_attempt_at = now() + interval '30 seconds'`);
    await save('/right');
    expect(await waitsFor()).toBeGreaterThan(20);
  });
});

describe('a letter', () => {
  const LEAD = 'lead@example.com';
  const refusals = new Map<string, number>();
  const letters: string[][] = [];
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ['STARTTLS'],
    onRcptTo: ({ address }, _session, done) => {
      const responseCode = refusals.get(address);
      done(responseCode === undefined ? null : Object.assign(new Error('no'), { responseCode }));
    },
    onData: (stream, { envelope }, done) => {
      letters.push(envelope.rcptTo.map(({ address }) => address));
      stream.resume().on('end', () => done());
    },
  });
  beforeAll(async () => {
    server.listen(0, '127.0.0.1');
    await once(server.server, 'listening');
  });
  afterAll(() => new Promise<void>((resolve) => server.close(resolve)));
  beforeEach(async () => {
    refusals.clear();
    letters.length = 0;
    const { port } = server.server.address() as AddressInfo;
    await saveAlertSink(database.db, secrets, world.home.viewer, ALERT_SINK_KINDS, {
      id: null,
      name: 'mail',
      kind: 'EMAIL',
      config: { host: '127.0.0.1', port, from: 'r@example.com', to: ['oncall@example.com', LEAD] },
      severities: ['WARNING'],
      enabled: true,
    });
  });

  test('that one of several refuses for now goes to that one again, and to nobody twice', async () => {
    refusals.set(LEAD, 450);
    await fireBurst();
    await deliver();
    await makeDue();
    await deliver();
    const [sink] = await listAlertSinks(database.db, world.home.viewer);
    expect(sink).toMatchObject({ waiting: 1, lastDeliveredAt: null });
    expect(sink!.lastError).toContain(LEAD);
    refusals.clear();
    await makeDue();
    await deliver();
    expect(letters).toEqual([['oncall@example.com'], [LEAD]]);
    expect(await listAlertSinks(database.db, world.home.viewer)).toMatchObject([
      { waiting: 0, lastError: null, lastDeliveredAt: expect.any(Date) as Date },
    ]);
  });

  test('that one of several refuses for good is taken, and the sink and the log say by whom not', async () => {
    refusals.set(LEAD, 550);
    await fireBurst();
    await deliver();
    const reason = `${LEAD}: SMTP 550 to RCPT TO (EENVELOPE)`;
    expect(await listAlertSinks(database.db, world.home.viewer)).toMatchObject([
      { waiting: 0, lastError: reason, lastDeliveredAt: expect.any(Date) as Date },
    ]);
    expect(log.entries.at(-1)).toMatchObject({ level: 'warn', details: { reason } });
  });
});

test('what was taken is not told again because the database was away for a moment', async () => {
  await saveSink('/once');
  await query(`
    CREATE SEQUENCE hiccup;
    CREATE FUNCTION hiccup() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF nextval('hiccup') = 1 THEN RAISE 'away'; END IF; RETURN NEW; END $$;
    CREATE TRIGGER hiccup BEFORE UPDATE ON alert_notice FOR EACH ROW
      WHEN (NEW.delivered_at IS NOT NULL) EXECUTE FUNCTION hiccup()`);
  await fireBurst();
  await deliver();
  expect(receiver.received).toHaveLength(1);
  expect(await query('SELECT attempts, next_attempt_at, error FROM alert_notice')).toEqual([
    { attempts: 1, next_attempt_at: null, error: null },
  ]);
});

test('two deliverers never tell the same thing twice', async () => {
  for (let index = 0; index < 10; index += 1) await saveSink(`/sink-${index}`);
  await fireBurst();
  await Promise.all([deliver(), deliver(), deliver()]);
  expect(receiver.received.map(({ path }) => path).sort()).toEqual(
    Array.from({ length: 10 }, (_, index) => `/sink-${index}`),
  );
});

describe('saving a sink', () => {
  test('hides its credentials and keeps them where a mask comes back', async () => {
    const { id, config } = await saveSink('/hidden');
    expect(config).toEqual({ url: '********', secret: '********' });
    expect(JSON.stringify(await query('SELECT * FROM alert_sink'))).not.toContain('/hidden"}');
    await saveAlertSink(database.db, secrets, world.home.viewer, ALERT_SINK_KINDS, {
      id,
      name: 'renamed',
      kind: 'WEBHOOK',
      config,
      severities: ['WARNING'],
      enabled: true,
    });
    await testAlertSink(database.db, world.home.viewer, id);
    await deliver();
    expect(receiver.at('/hidden')[0]!.body.text).toBe('[TEST] Test: This is a test of the sink renamed.');
  });

  test('a disabled sink is told nothing, and a deleted one is gone with what it was to be told', async () => {
    const sink = await saveSink('/off');
    await fireBurst();
    await query('UPDATE alert_sink SET enabled = false');
    await deliver();
    expect(receiver.received).toEqual([]);
    await deleteAlertSink(database.db, world.home.viewer, sink.id);
    expect(await query('SELECT 1 FROM alert_notice')).toEqual([]);
  });

  test('another tenant’s sink is not found', async () => {
    const { id } = await saveSink('/mine');
    const { viewer } = world.other;
    const faults = [
      deleteAlertSink(database.db, viewer, id),
      testAlertSink(database.db, viewer, id),
      testAlertSink(database.db, viewer, 'garbage'),
    ].map((work) => faultOf(work));
    for (const fault of faults) expect(await fault).toMatchObject({ code: 'NOT_FOUND' });
    expect(await query('SELECT 1 FROM alert_notice')).toEqual([]);
    expect(await listAlertSinks(database.db, viewer)).toEqual([]);
  });

  test('without a key to seal with is refused', async () => {
    const saving = saveAlertSink(database.db, new SecretBox([]), world.home.viewer, ALERT_SINK_KINDS, {
      id: null,
      name: 'x',
      kind: 'WEBHOOK',
      config: { url: 'https://example.com/hook' },
      severities: ['WARNING'],
      enabled: true,
    });
    expect(await faultOf(saving)).toMatchObject({ code: 'INVALID_INPUT' });
  });
});
