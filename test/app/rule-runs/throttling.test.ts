// Channels that slow us down, as clients see them: the circuit breaker, budgets, and that none of it holds up
// another channel. Health is read from the channel, what happened from the ledger of the run.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { singleForm } from '../../connectors/http/support.js';
import { ScriptedServer, type ScriptedReply } from '../../connectors/support.js';
import { until } from '../../support/app.js';
import { idsOf, RuleRunWorld } from './world.js';

const PROBE_ITEMS = 10;
/** Of a channel of kind http, for one batch. */
const CALLS_AT_ONCE = 8;
const OK: ScriptedReply = {};
const THROTTLED: ScriptedReply = { status: 429 };
const QUICK = { retry: { throttleBaseMs: 1, maxMs: 1, maxAttempts: 100 } };

let world: RuleRunWorld;
let server: ScriptedServer;
let reply: () => ScriptedReply | Promise<ScriptedReply>;
let channelId: string;

beforeAll(async () => {
  world = await RuleRunWorld.start({ RUNLEDGER_CIRCUIT_OPEN_MS: '', RUNLEDGER_THROTTLE_BASE_MS: '' });
});
afterAll(() => world.stop());
beforeEach(async () => {
  reply = () => OK;
  server = await ScriptedServer.start(() => reply());
});
afterEach(async () => {
  const { ruleRuns } = await world.read(
    '{ ruleRuns(first: 100, filter: { status: [QUEUED, APPLYING] }) { nodes { id } } }',
  );
  for (const { id } of ruleRuns.nodes) await world.do('cancelRuleRun', { runId: id });
  await server.stop();
});

async function open(name: string, policy: object = {}): Promise<string> {
  channelId = await world.saveChannel(name, 'http', { ...singleForm(server.origin), policy });
  return channelId;
}

const circuitIs = (circuit: string) =>
  until(
    () => world.health(channelId),
    (health) => health.circuit === circuit,
  );
const circuitEvents = async (id: string) =>
  (await world.types(id)).filter((type) => type.startsWith('channel.'));

describe('the circuit', () => {
  test('is closed to begin with, opens with more than five 429s in a row, and stays open for 60 s', async () => {
    await open('opens');
    expect(await world.health(channelId)).toEqual({
      circuit: 'CLOSED',
      openUntil: null,
      consecutive429: 0,
      availableTokens: null,
    });
    reply = () => THROTTLED;
    const before = Date.now();
    const id = await world.queue(idsOf('a', 40), { channelId });
    const { openUntil, consecutive429 } = await circuitIs('OPEN');
    expect(consecutive429).toBeGreaterThan(5);
    expect(Date.parse(openUntil)).toBeGreaterThanOrEqual(before + 60_000);
    expect(Date.parse(openUntil)).toBeLessThanOrEqual(Date.now() + 60_000);
    await world.untilRun(id, ({ counts }) => counts.applying === 0);
    const [event] = (await world.events(id)).filter(({ type }) => type === 'channel.open_circuit');
    expect(event).toMatchObject({ level: 'WARN', payload: { channelId, circuit: 'OPEN' } });
    // Whoever was not answered when it opened was not tried: it cost those no attempt.
    const tried = [...(await world.targets(id)).values()].filter(({ attempts }) => attempts > 0);
    expect(tried.length).toBeGreaterThan(5);
    expect(tried.length).toBeLessThanOrEqual(server.calls.length);
    expect(server.calls.length).toBeLessThan(40);
  });

  test('an answer of another kind in between starts the count anew', async () => {
    await open('counts', QUICK);
    let calls = 0;
    reply = () => (++calls % 6 === 0 ? OK : THROTTLED);
    const { id } = await world.apply(['a'], { channelId });
    expect(server.calls).toHaveLength(6);
    expect(await circuitEvents(id)).toEqual([]);
    expect(await world.health(channelId)).toMatchObject({ circuit: 'CLOSED', consecutive429: 0 });
  });

  test('half-open lets one batch through, and the rest when that is answered', async () => {
    await open('half-open', { ...QUICK, circuit: { openMs: 200 } });
    reply = () => THROTTLED;
    const id = await world.queue(idsOf('a', 60), { channelId });
    let release!: () => void;
    const released = new Promise<void>((resolve) => (release = resolve));
    await circuitIs('OPEN');
    await world.untilRun(id, ({ counts }) => counts.applying === 0);
    const before = server.calls.length;
    reply = () => released.then(() => OK);
    await circuitIs('HALF_OPEN');
    await until(
      async () => server.calls.length,
      (calls) => calls > before,
    );
    expect((await world.run(id)).counts.applying).toBeLessThanOrEqual(PROBE_ITEMS);
    expect(server.calls.length - before).toBeLessThanOrEqual(PROBE_ITEMS);
    release();
    expect(await world.end(id)).toMatchObject({ status: 'APPLIED' });
    expect(await world.health(channelId)).toMatchObject({
      circuit: 'CLOSED',
      openUntil: null,
      consecutive429: 0,
    });
    const events = await circuitEvents(id);
    expect(events[0]).toBe('channel.open_circuit');
    expect(events.slice(-2)).toEqual(['channel.half_open_circuit', 'channel.close_circuit']);
  });

  test('opens again when the batch is throttled as well', async () => {
    await open('again', { ...QUICK, circuit: { openMs: 50 } });
    reply = () => THROTTLED;
    const id = await world.queue(idsOf('a', 20), { channelId });
    const events = await until(
      () => circuitEvents(id),
      (each) => each.length >= 3,
    );
    expect(events.slice(0, 3)).toEqual([
      'channel.open_circuit',
      'channel.half_open_circuit',
      'channel.open_circuit',
    ]);
  });

  test('takes as many 429s as the channel’s policy says', async () => {
    await open('strict', { circuit: { toleratedThrottles: 0 } });
    reply = () => THROTTLED;
    await world.queue(['a'], { channelId });
    expect(await circuitIs('OPEN')).toMatchObject({ consecutive429: 1 });
  });
});

test('a throttled channel does not slow another one', async () => {
  await open('throttled');
  reply = () => THROTTLED;
  const throttled = await world.queue(idsOf('a', 500), { channelId });
  await circuitIs('OPEN');
  expect(await world.apply(idsOf('b', 500))).toMatchObject({ status: 'APPLIED' });
  expect(await world.run(throttled)).toMatchObject({ status: 'APPLYING', counts: { applied: 0 } });
  expect(await world.health()).toMatchObject({ circuit: 'CLOSED', consecutive429: 0 });
});

test('nor does one that never answers, however much of it is under way', async () => {
  await open('silent');
  reply = () => new Promise(() => {});
  const silent = await world.queue(idsOf('a', 1_000), { channelId });
  // Each of the four workers has a batch that hangs, and goes on without it.
  await until(
    async () => server.calls.length,
    (calls) => calls >= 4 * CALLS_AT_ONCE,
  );
  expect(await world.apply(idsOf('d', 10))).toMatchObject({ status: 'APPLIED' });
  const { counts } = await world.run(silent);
  expect(counts).toMatchObject({ applied: 0, failed: 0 });
  // No more of it is begun than its share.
  expect(counts.applying).toBeLessThanOrEqual(4 * 100);
});

test('nor do comparisons with channels that never answer', async () => {
  const runs: string[] = [];
  for (const name of idsOf('mute', 4)) {
    const config = { ...singleForm(server.origin), callTimeoutMs: 3_600_000 };
    const mute = await world.saveChannel(name, 'http', config);
    runs.push((await world.apply([name], { channelId: mute })).id);
  }
  reply = () => new Promise(() => {});
  const before = server.calls.length;
  const reports = runs.map((runId) => world.ask('reconcileRuleRun', { runId }).catch(() => null));
  // Each of the four workers has one in hand.
  await until(
    async () => server.calls.length,
    (calls) => calls === before + runs.length,
  );
  expect(await world.apply(idsOf('e', 10))).toMatchObject({ status: 'APPLIED' });
  // Nobody waits for them any more.
  await world.app.db.query('DELETE FROM reconciliation');
  void reports;
});

describe('a budget', () => {
  test('of the policy’s rate limit lets through what it holds; health tells what is left', async () => {
    await open('bucket', { rateLimit: { perSecond: 0.001, burst: 7 } });
    const id = await world.queue(idsOf('a', 20), { channelId });
    await world.untilRun(id, ({ counts }) => counts.applied === 7);
    const { availableTokens } = await world.health(channelId);
    expect(availableTokens).toBeGreaterThanOrEqual(0);
    expect(availableTokens).toBeLessThan(1);
    expect(server.calls).toHaveLength(7);
    expect((await world.run(id)).counts).toMatchObject({ applied: 7, queued: 13 });
    // Without the limit there is nothing to wait for.
    const config = { ...singleForm(server.origin) };
    await world.do('saveChannel', { id: channelId, name: 'bucket', kind: 'http', config }, 'channel { id }');
    expect(await world.end(id)).toMatchObject({ status: 'APPLIED' });
    expect((await world.health(channelId)).availableTokens).toBeNull();
  });

  test('of a shop is what the shop says', async () => {
    await world.apply(idsOf('c', 20));
    const { availableTokens } = await world.health();
    expect(availableTokens).toBeGreaterThan(0);
    expect(availableTokens).toBeLessThanOrEqual(40_000);
  });
});

test('no more batches at once than the channel’s policy says', async () => {
  await open('one at a time', { concurrency: 1 });
  let release!: () => void;
  const released = new Promise<void>((resolve) => (release = resolve));
  reply = () => released.then(() => OK);
  // Two workers would each take a batch of a hundred.
  const id = await world.queue(idsOf('a', 200), { channelId });
  await until(
    async () => server.calls.length,
    (calls) => calls >= CALLS_AT_ONCE,
  );
  expect((await world.run(id)).counts.applying).toBeLessThanOrEqual(100);
  expect(server.calls).toHaveLength(CALLS_AT_ONCE);
  release();
  expect(await world.end(id)).toMatchObject({ status: 'APPLIED' });
});
