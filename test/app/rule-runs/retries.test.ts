// When a target is tried again, as clients see it: how often, after how long, by whose figures. The clock is
// moved by making what waits come due; each wait is read off before.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { until } from '../../support/app.js';
import { singleForm } from '../../connectors/http/support.js';
import { ScriptedServer, type ScriptedReply } from '../../connectors/support.js';
import { idsOf, RuleRunWorld, type Answer } from './world.js';

/** What a server has that nobody configured; but calls that hang are given up soon. */
const DEFAULTS = {
  RUNLEDGER_RETRY_BASE_MS: '',
  RUNLEDGER_RETRY_MAX_MS: '',
  RUNLEDGER_THROTTLE_BASE_MS: '',
  RUNLEDGER_CIRCUIT_OPEN_MS: '',
  RUNLEDGER_CALL_TIMEOUT_MS: '1500',
};

let world: RuleRunWorld;
let server: ScriptedServer;
let reply: () => ScriptedReply = () => ({});

beforeAll(async () => {
  world = await RuleRunWorld.start(DEFAULTS);
  server = await ScriptedServer.start(() => reply());
});
afterAll(async () => {
  await world.stop();
  await server.stop();
});

const endpoint = (name: string, policy: object = {}) =>
  world.saveChannel(name, 'http', { ...singleForm(server.origin), policy });

/** The target once it waits for its next attempt, or has come to its end. */
function settled(id: string, externalId: string, attempts: number): Promise<Answer> {
  return until(
    () => world.target(id, externalId),
    (target) => target.status === 'FAILED' || (target.status === 'QUEUED' && target.attempts === attempts),
  );
}

/** Milliseconds between which a wait lies. */
interface Wait {
  readonly least: number;
  readonly most: number;
}

/** From the failure of the latest attempt, whose line is written some time after, and whose claim's was before. */
function waitOf({ history, nextAttemptAt }: Answer): Wait {
  const since = (type: string): number => {
    const line = history.findLast((each: Answer) => each.type === type);
    return Date.parse(nextAttemptAt) - Date.parse(line.createdAt);
  };
  return { least: since('rule_target.retry'), most: since('rule_target.claim') };
}

/** Every wait of a target from its first failure to its last, each cut short. */
async function waitsOf(id: string, externalId: string): Promise<Wait[]> {
  const waits: Wait[] = [];
  for (;;) {
    const target = await settled(id, externalId, waits.length + 1);
    if (target.status === 'FAILED') return waits;
    waits.push(waitOf(target));
    await world.pass(id);
  }
}

/** Times in answers are cut to milliseconds. */
const CUT_MS = 1;

function expectWaits(waits: readonly Wait[], expected: readonly number[], jitter: number): void {
  expect(waits).toHaveLength(expected.length);
  waits.forEach(({ least, most }, index) => {
    expect(most).toBeGreaterThanOrEqual(expected[index]! * (1 - jitter) - CUT_MS);
    expect(least).toBeLessThanOrEqual(expected[index]! * (1 + jitter) + CUT_MS);
  });
}

describe('by default', () => {
  test('three attempts in all, the second after 2 s and the third after 4 s, ± 20 %, by the clock', async () => {
    const { id } = await world.apply(['down-1']);
    const { status, attempts, errorCode, history } = await world.target(id, 'down-1');
    expect({ status, attempts, errorCode }).toEqual({ status: 'FAILED', attempts: 3, errorCode: 'UPSTREAM' });
    const times = (type: string): number[] =>
      history
        .filter((line: Answer) => line.type === type)
        .map(({ createdAt }: Answer) => Date.parse(createdAt));
    const [claims, retries] = [times('rule_target.claim'), times('rule_target.retry')];
    expect([claims.length, retries.length]).toEqual([3, 2]);
    expect(claims[1]! - claims[0]!).toBeGreaterThanOrEqual(1600 - CUT_MS);
    expect(claims[2]! - claims[1]!).toBeGreaterThanOrEqual(3200 - CUT_MS);
  });

  test('the jitter spreads the retries to both sides, never further than 20 %', async () => {
    const channelId = await world.shop('spread', { retry: { baseMs: 30_000 } });
    const id = await world.queue(idsOf('down', 40), { channelId });
    const targets = await until(
      async () => [...(await world.targets(id)).values()],
      (each) => each.every(({ status, attempts }) => status === 'QUEUED' && attempts === 1),
    );
    const waits = targets.map(waitOf);
    expectWaits(waits, Array<number>(40).fill(30_000), 0.2);
    expect(Math.min(...waits.map(({ least }) => least))).toBeLessThan(29_000);
    expect(Math.max(...waits.map(({ most }) => most))).toBeGreaterThan(31_000);
    await world.do('cancelRuleRun', { runId: id });
  });

  test('where more attempts are allowed each wait is twice the one before, up to 64 s', async () => {
    const channelId = await world.shop('patient', { retry: { maxAttempts: 8 } });
    const id = await world.queue(['down-1'], { channelId });
    expectWaits(await waitsOf(id, 'down-1'), [2000, 4000, 8000, 16_000, 32_000, 64_000, 64_000], 0.2);
    expect(await world.target(id, 'down-1')).toMatchObject({ attempts: 8, errorCode: 'UPSTREAM' });
  });

  test.each([
    ['fail-1', 'INVALID'],
    ['auth-1', 'AUTH'],
  ])('an error that cannot pass fails at once: %s', async (externalId, errorCode) => {
    const { id } = await world.apply([externalId]);
    expect(await world.target(id, externalId)).toMatchObject({ status: 'FAILED', attempts: 1, errorCode });
  });

  test('a timeout counts as an attempt, and the third is the last', async () => {
    const id = await world.queue(['hang-1']);
    expectWaits(await waitsOf(id, 'hang-1'), [2000, 4000], 0.2);
    expect(await world.target(id, 'hang-1')).toMatchObject({ attempts: 3, errorCode: 'TIMEOUT' });
  });
});

describe('a throttled call', () => {
  test('waits for what Retry-After says, to the second, and is an attempt', async () => {
    const id = await world.queue(['throttle-1']);
    const waiting = await settled(id, 'throttle-1', 1);
    expect(waiting).toMatchObject({ status: 'QUEUED', errorCode: 'RATE_LIMITED' });
    expectWaits([waitOf(waiting)], [1000], 0);
    await world.end(id);
    expect(await world.target(id, 'throttle-1')).toMatchObject({ status: 'APPLIED', attempts: 2 });
  });

  test.each<[string, () => string]>([
    ['seconds', () => '7200'],
    ['an HTTP date', () => new Date(Date.now() + 7_200_000).toUTCString()],
  ])('waits for what Retry-After says in %s', async (form, header) => {
    reply = () => ({ status: 429, headers: { 'retry-after': header() } });
    const id = await world.queue(['a'], { channelId: await endpoint(`retry-after ${form}`) });
    const { least, most } = waitOf(await settled(id, 'a', 1));
    // A date has whole seconds.
    expect(most).toBeGreaterThan(7_198_000);
    expect(least).toBeLessThanOrEqual(7_200_000 + CUT_MS);
    await world.do('cancelRuleRun', { runId: id });
  });

  test.each([
    ['none', {}],
    ['nonsense', { 'retry-after': 'soon' }],
  ])('waits 16, 32, then 64 s when Retry-After says %s', async (what, headers) => {
    reply = () => ({ status: 429, headers });
    const channelId = await endpoint(`throttled ${what}`, { retry: { maxAttempts: 5 } });
    const id = await world.queue(['a'], { channelId });
    expectWaits(await waitsOf(id, 'a'), [16_000, 32_000, 64_000, 64_000], 0.2);
    expect(await world.target(id, 'a')).toMatchObject({ attempts: 5, errorCode: 'RATE_LIMITED' });
    // Five in a row are not more than five.
    expect(await world.health(channelId)).toMatchObject({ circuit: 'CLOSED', consecutive429: 5 });
  });

  test('is one too when Shopify says THROTTLED with HTTP 200', async () => {
    const poor = await RuleRunWorld.start({ ...DEFAULTS, RUNLEDGER_SANDBOX_RESTORE_PER_S: '1' });
    try {
      // Somebody else spends the twenty points that the shop has.
      const ids = idsOf('any', 20).map((each) => `gid://shopify/ProductVariant/${each}`);
      const spent = await poor.callShop('query ($ids: [ID!]!) { nodes(ids: $ids) { id } }', { ids });
      expect(spent.body.errors).toBeUndefined();
      const id = await poor.queue(idsOf('a', 5));
      const waiting = await until(
        () => poor.target(id, 'a-1'),
        ({ attempts, status }) => attempts === 1 && status === 'QUEUED',
      );
      expect(waiting).toMatchObject({ errorCode: 'RATE_LIMITED', errorMessage: 'Throttled' });
      // Five points for the look-up, at one a second.
      expect(waitOf(waiting).least).toBeLessThanOrEqual(5_000 + CUT_MS);
      expect(waitOf(waiting).most).toBeGreaterThan(1_000);
      expect((await poor.health()).consecutive429).toBeGreaterThanOrEqual(1);
    } finally {
      await poor.stop();
    }
  });
});

describe('a channel has figures of its own', () => {
  test('for every wait and the number of attempts', async () => {
    const retry = { maxAttempts: 4, baseMs: 10_000, multiplier: 3, maxMs: 50_000, jitter: 0 };
    const id = await world.queue(['down-1'], { channelId: await world.shop('own figures', { retry }) });
    expectWaits(await waitsOf(id, 'down-1'), [10_000, 30_000, 50_000], 0);
    expect(await world.target(id, 'down-1')).toMatchObject({ status: 'FAILED', attempts: 4 });
  });

  test('for throttled calls', async () => {
    reply = () => ({ status: 429 });
    const retry = { throttleBaseMs: 5_000, maxMs: 8_000, jitter: 0 };
    const id = await world.queue(['a'], { channelId: await endpoint('own throttle', { retry }) });
    expectWaits(await waitsOf(id, 'a'), [5_000, 8_000], 0);
  });

  test('and one attempt may be all', async () => {
    const channelId = await world.shop('once', { retry: { maxAttempts: 1 } });
    const { id } = await world.apply(['flaky1-1'], { channelId });
    expect(await world.target(id, 'flaky1-1')).toMatchObject({ status: 'FAILED', attempts: 1 });
  });
});

test('every attempt of a target carries the same key, and no two targets share one', async () => {
  reply = () => ({ status: 503 });
  const first = server.calls.length;
  const channelId = await endpoint('keys', { retry: { baseMs: 1, maxMs: 1 } });
  const { id } = await world.apply(['a', 'b'], { channelId });
  const calls = server.calls.slice(first);
  expect(calls).toHaveLength(6);
  for (const externalId of ['a', 'b']) {
    const { id: targetId } = await world.target(id, externalId);
    const own = calls.filter(({ path }) => path.endsWith(`/${externalId}`));
    expect(own.map(({ headers }) => headers['idempotency-key'])).toEqual(
      Array<string>(3).fill(`${id}:${targetId}:apply`),
    );
  }
});

test('the ledger has each attempt of each target once, by its number', async () => {
  const channelId = await world.shop('ledger', { retry: { baseMs: 1, maxMs: 1 } });
  const { id } = await world.apply(['flaky1-1', 'flaky2-1', 'down-1', 'a'], { channelId });
  for (const { attempts, history } of (await world.targets(id)).values()) {
    const claims = history.filter(({ type }: Answer) => type === 'rule_target.claim');
    expect(claims.map(({ payload }: Answer) => payload.attempt)).toEqual(
      Array.from({ length: attempts }, (_, index) => index + 1),
    );
  }
});
