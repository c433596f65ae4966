// The limits of a channel are its own, not those of a server process: two of them on one database keep one
// bucket, one circuit and one limit of batches.
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { singleForm } from '../../connectors/http/support.js';
import { ScriptedServer, type ScriptedReply } from '../../connectors/support.js';
import { ServerProcess, until } from '../../support/app.js';
import { idsOf, RuleRunWorld } from './world.js';

const SETTINGS = { RUNLEDGER_SECRET_KEY: 'ab'.repeat(32), RUNLEDGER_CIRCUIT_OPEN_MS: '' };
/** Of a channel of kind http: the calls of one batch, and its items. */
const CALLS_AT_ONCE = 8;
const PER_BATCH = 16;

let world: RuleRunWorld;
let second: ServerProcess;
let server: ScriptedServer;
let reply: (path: string) => ScriptedReply;

beforeAll(async () => {
  world = await RuleRunWorld.start(SETTINGS);
  second = await ServerProcess.spawn(world.app.database.url, { ...SETTINGS, RUNLEDGER_SANDBOX: 'off' });
}, 60_000);
afterAll(async () => {
  await second.end('SIGTERM');
  await world.stop();
}, 60_000);
beforeEach(async () => {
  reply = () => ({});
  server = await ScriptedServer.start(({ path }) => reply(path));
});
afterEach(() => server.stop());

const open = (name: string, policy: object) =>
  world.saveChannel(name, 'http', { ...singleForm(server.origin), policy });

/** Resolves when workers of both processes have taken part of some run, begun after this was asked. */
async function untilBothHaveLooked(channelId: string): Promise<void> {
  const runs: string[] = [];
  await until(
    async () => {
      runs.push(await world.queue(idsOf(`look${runs.length}`, 20), { channelId }));
      await world.end(runs.at(-1)!);
      const [row] = await world.app.db.query<{ processes: number }>(
        `SELECT count(DISTINCT worker.pid)::int AS processes FROM run_event JOIN worker ON worker.id = run_event.actor
         WHERE run_id = ANY($1) AND type = 'rule_target.claim'`,
        [runs],
      );
      return row!.processes;
    },
    (processes) => processes === 2,
  );
}

test('one bucket', async () => {
  const channelId = await open('bucket', { rateLimit: { perSecond: 0.001, burst: 7 } });
  const id = await world.queue(idsOf('a', 40), { channelId });
  await world.untilRun(id, ({ counts }) => counts.applied === 7);
  await untilBothHaveLooked(await open('free', {}));
  expect((await world.run(id)).counts).toMatchObject({ applied: 7, queued: 33 });
  expect((await world.health(channelId)).availableTokens).toBeLessThan(1);
});

test('one circuit', async () => {
  const channelId = await open('breaker', { circuit: { toleratedThrottles: 5, openMs: 3_600_000 } });
  const isLimited = (path: string): boolean => path.includes('/b-');
  reply = (path) => (isLimited(path) ? { status: 429 } : {});
  const id = await world.queue(idsOf('b', 400), { channelId });
  await until(
    () => world.health(channelId),
    ({ circuit }) => circuit === 'OPEN',
  );
  const free = await open('free of 429', {});
  // Whoever had found the run before it opened is done with it then.
  await untilBothHaveLooked(free);
  await world.untilRun(id, ({ counts }) => counts.applying === 0);
  const count = () => server.calls.filter(({ path }) => isLimited(path)).length;
  const calls = count();
  await untilBothHaveLooked(free);
  expect(count()).toBe(calls);
  expect((await world.run(id)).counts).toMatchObject({ applied: 0, applying: 0 });
});

test('one limit of batches', async () => {
  let release!: () => void;
  const released = new Promise<void>((resolve) => (release = resolve));
  const held = await ScriptedServer.start(() => released.then(() => ({})));
  const config = { ...singleForm(held.origin), policy: { concurrency: 1 } };
  const channelId = await world.saveChannel('one at a time', 'http', config);
  const id = await world.queue(idsOf('c', 3 * PER_BATCH), { channelId });
  await until(
    async () => held.calls.length,
    (calls) => calls >= CALLS_AT_ONCE,
  );
  await untilBothHaveLooked(await open('free of slots', {}));
  expect(held.calls).toHaveLength(CALLS_AT_ONCE);
  expect((await world.run(id)).counts.applying).toBeLessThanOrEqual(PER_BATCH);
  release();
  expect(await world.end(id)).toMatchObject({ status: 'APPLIED' });
  await held.stop();
});
