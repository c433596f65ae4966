// The nivoda source against the sandbox's feed, over HTTP.
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { stoneId } from '../../../src/sandbox/feed/records.js';
import type { FeedOptions } from '../../../src/sandbox/feed/feed.js';
import { startSandbox, type Sandbox } from '../../../src/sandbox/server.js';
import type { PageRequest, Source, SourceFailure } from '../../../src/connectors/source.js';
import { never, open, planOf, readIds, readRange } from '../source-support.js';

let sandbox: Sandbox;
let feeds = 0;

beforeAll(async () => {
  sandbox = await startSandbox();
});
afterAll(() => sandbox.stop());

/** A source on a feed of its own. */
function openFeed(
  options: FeedOptions,
  config: object = {},
): { readonly name: string; readonly source: Source } {
  const name = `feed-${(feeds += 1)}`;
  return { name, source: open('nivoda', { ...sandbox.feedConfig(name, options), ...config }) };
}

const FIRST_PAGE: PageRequest = {
  range: { minPrice: 0, maxPrice: null },
  offset: 0,
  cursor: null,
  limit: 30,
  since: null,
};

async function failureOf(source: Source): Promise<SourceFailure> {
  const outcome = await source.fetchPage(FIRST_PAGE, never);
  if (outcome.kind === 'page') throw new Error('expected a failure, but there was a page');
  return outcome;
}

test('the plan covers the feed in ranges of about equal size, and the pages give every record once', async () => {
  const { source } = openFeed({ size: 3_000 });
  const { ranges } = await planOf(source);
  expect(ranges.length).toBeGreaterThan(20);
  expect(ranges.reduce((sum, { totalRecords }) => sum + totalRecords!, 0)).toBe(3_000);
  const ids = await readIds(source);
  expect(ids).toHaveLength(3_000);
  expect(new Set(ids).size).toBe(3_000);
});

test('the last page is the short one, or an empty one when the range ends with a full page', async () => {
  const { source } = openFeed({ size: 60 });
  const { ranges } = await planOf(source);
  const { pages } = await readRange(source, ranges[0]!);
  expect(pages.map(({ records, isLast }) => [records.length, isLast])).toEqual([
    [30, false],
    [30, false],
    [0, true],
  ]);
  expect(pages[0]!.totalRecords).toBe(60);
});

describe('the record before a page', () => {
  test('comes with every page but the first', async () => {
    const { name, source } = openFeed({ size: 90 });
    const before = async (offset: number): Promise<unknown> => {
      const page = await source.fetchPage({ ...FIRST_PAGE, offset }, never);
      expect(page).toMatchObject({ kind: 'page', passed: Math.min(30, 90 - offset) });
      return page.kind === 'page' && page.before;
    };
    expect(await before(0)).toBeNull();
    expect(await before(30)).toBe(stoneId(29));
    expect(await before(90)).toBe(stoneId(89));
    sandbox.feedChanges(name).remove(3, Date.now());
    expect(await before(30)).toBe(stoneId(30));
  });

  test.each([
    ['none', {}],
    ['an empty one', { before: { items: [] } }],
    ['more than one', { before: { items: [{ diamond: { id: 'a' } }, { diamond: { id: 'b' } }] } }],
    ['one without an id', { before: { items: [null] } }],
    ['something else', { before: 'what?' }],
  ])('is not known from a supplier that gives %s; the page is one all the same', async (_, answer) => {
    const as = { diamonds_by_query_count: 31, diamonds_by_query: { items: [{ diamond: { id: 'c' } }] } };
    const authenticate = { username_and_password: { token: 't' } };
    const server = createServer((_request, response) => {
      response.end(JSON.stringify({ data: { authenticate, as: { ...as, ...answer } } }));
    });
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    const source = open('nivoda', { ...sandbox.feedConfig('x'), endpoint });
    const page = await source.fetchPage({ ...FIRST_PAGE, offset: 30 }, never);
    server.close();
    expect(page).toMatchObject({ kind: 'page', passed: 1, isLast: true, before: null });
  });
});

test('an incremental plan counts and reads only what changed', async () => {
  const { name, source } = openFeed({ size: 300 });
  const since = new Date();
  expect((await planOf(source, since)).ranges).toEqual([]);
  sandbox.feedChanges(name).setPrice(7, 123_456, since.getTime());
  sandbox.feedChanges(name).setPrice(8, 999, since.getTime() - 1);
  expect(await readIds(source, since)).toEqual([stoneId(7)]);
});

interface Refusal {
  readonly status: number;
  readonly body?: object;
}

/** Reads a feed behind a server that refuses the calls that it is told to, by their numbers; answers those calls too. */
async function behind<T>(
  size: number,
  refuse: (call: number) => Refusal | null,
  read: (source: Source) => Promise<T>,
): Promise<{ readonly outcome: T; readonly calls: number }> {
  let calls = 0;
  const server = createServer((request, response) => {
    calls += 1;
    const refusal = refuse(calls);
    if (refusal) return void response.writeHead(refusal.status).end(JSON.stringify(refusal.body ?? {}));
    const target = sandbox.feedConfig(`behind-${size}`, { size }).endpoint;
    void (async () => {
      const body = Buffer.concat(await request.toArray());
      const answer = await fetch(target, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body,
      });
      response.end(await answer.text());
    })();
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  const policy = { retry: { baseMs: 1 } };
  const outcome = await read(open('nivoda', { ...sandbox.feedConfig('x'), endpoint, policy }));
  server.close();
  return { outcome, calls };
}

describe('a plan of many counts', () => {
  /** The feed behind a server that is down for the calls whose numbers are given. */
  async function behindFaults(size: number, down: (call: number) => boolean) {
    const refuse = (call: number): Refusal | null => (down(call) ? { status: 503 } : null);
    const { outcome, calls } = await behind(size, refuse, (source) => source.plan(null, never));
    return { plan: outcome, calls };
  }

  test('goes on where one of them fails and then passes', async () => {
    const whole = await behindFaults(600, () => false);
    expect(whole.calls).toBeGreaterThan(10);
    const { plan, calls } = await behindFaults(600, (call) => call % 4 === 0);
    expect({ ...plan, beganAt: null }).toEqual({ ...whole.plan, beganAt: null });
    expect(calls).toBeLessThan(whole.calls * 1.5);
  });

  test('fails where one of them goes on failing', async () => {
    const { plan, calls } = await behindFaults(500, (call) => call > 5);
    expect(plan).toMatchObject({ kind: 'transient', message: 'the source answered HTTP 503' });
    expect(calls).toBe(5 + 4);
  });
});

test('the plan began before its first call', async () => {
  const { source } = openFeed({ size: 10 });
  const before = Date.now();
  const { beganAt } = await planOf(source);
  // The source's clock shows whole seconds: it may be behind by as much.
  expect(beganAt.getTime()).toBeGreaterThan(before - 1_000);
  expect(beganAt.getTime()).toBeLessThanOrEqual(Date.now());
});

test('a stone becomes an item; its offer and certificate are attributes', async () => {
  const { source } = openFeed({ size: 1 });
  const { records } = await readRange(source, (await planOf(source)).ranges[0]!);
  const item = source.mapRecord(JSON.parse(records[0]!.json));
  expect(item).toMatchObject({ unitAmount: 15_000, costAmount: 15_000, currency: 'USD' });
  expect(item).toMatchObject({ title: expect.stringMatching(/ ct [A-Z]+, [A-Z] [A-Z0-9]+, [A-Z]+ \d+$/) });
  expect(item).toMatchObject({ attributes: { availability: 'AVAILABLE', lab: expect.any(String) } });
});

test.each([
  [{}, 'price'],
  [{ price: 1, diamond: null }, 'diamond'],
  [{ price: -5, currency: 'USD', diamond: {} }, 'price: -5 is no amount'],
  [{ price: 0.5, currency: 'USD', diamond: {} }, 'price: 0.5 is no amount'],
  [{ price: 5, currency: 'XYZ', diamond: {} }, 'currency: XYZ is no currency'],
])('%j is no item: %s', (payload, reason) => {
  const { source } = openFeed({});
  expect(source.mapRecord(payload)).toEqual({ reason: expect.stringContaining(reason) });
});

describe('failures', () => {
  test('503 passes by itself', async () => {
    const { source } = openFeed({ faults: 'down:1' });
    expect(await failureOf(source)).toEqual({
      kind: 'transient',
      throttled: false,
      message: 'the source answered HTTP 503',
    });
    expect(await source.fetchPage(FIRST_PAGE, never)).toMatchObject({ kind: 'page' });
  });

  test('429 names its delay', async () => {
    const { source } = openFeed({ faults: 'throttle:1' });
    expect(await failureOf(source)).toMatchObject({
      kind: 'transient',
      throttled: true,
      retryAfterMs: 1_000,
    });
  });

  test('403 does not pass', async () => {
    const { source } = openFeed({ faults: 'deny' });
    expect(await failureOf(source)).toMatchObject({
      kind: 'permanent',
      message: expect.stringContaining('403'),
    });
  });

  test('a page of HTML may pass', async () => {
    const { source } = openFeed({ faults: 'garble' });
    expect(await failureOf(source)).toMatchObject({
      kind: 'transient',
      message: expect.stringContaining('<html>'),
    });
  });

  test('no answer in time may pass', async () => {
    const { source } = openFeed({ faults: 'hang' }, { callTimeoutMs: 100 });
    expect(await failureOf(source)).toMatchObject({
      kind: 'transient',
      message: expect.stringContaining('100 ms'),
    });
  });

  /** A second page whose calls are refused so many times, read once and then again; its first one was read before. */
  function secondPage(refusal: Refusal, times = 1) {
    const page = { ...FIRST_PAGE, offset: 30 };
    return behind(
      100,
      (call) => (call > 2 && call <= 2 + times ? refusal : null),
      async (source) => {
        await source.fetchPage(FIRST_PAGE, never);
        return [await source.fetchPage(page, never), await source.fetchPage(page, never)] as const;
      },
    );
  }

  const refusedWith = (code?: string): Refusal => ({
    status: 200,
    body: { errors: [{ message: 'no', ...(code === undefined ? {} : { extensions: { code } }) }] },
  });

  test.each([undefined, 'TIMEOUT', 'INTERNAL_SERVER_ERROR', 'THROTTLED'])(
    'an error of GraphQL whose code is %s may pass',
    async (code) => {
      const { outcome } = await secondPage(refusedWith(code));
      expect(outcome).toMatchObject([
        { kind: 'transient', message: 'the source refused: no' },
        { kind: 'page', passed: 30 },
      ]);
    },
  );

  test.each(['GRAPHQL_PARSE_FAILED', 'GRAPHQL_VALIDATION_FAILED', 'BAD_USER_INPUT', 'FORBIDDEN'])(
    'an error of GraphQL whose code is %s does not pass',
    async (code) => {
      const { outcome } = await secondPage(refusedWith(code));
      expect(outcome[0]).toEqual({ kind: 'permanent', message: 'the source refused: no' });
    },
  );

  test.each([
    ['HTTP 401', { status: 401 }],
    ['UNAUTHENTICATED', refusedWith('UNAUTHENTICATED')],
  ])('a token that has expired, as %s says, is renewed', async (_, refusal) => {
    const { outcome, calls } = await secondPage(refusal);
    expect(outcome).toMatchObject([{ kind: 'page' }, { kind: 'page' }]);
    // A login and a page; the one that was refused, a login, and the two.
    expect(calls).toBe(2 + 2 + 2);
  });

  test('HTTP 401 to a fresh token, too, does not pass', async () => {
    const { outcome } = await secondPage({ status: 401 }, 4);
    expect(outcome[0]).toEqual({ kind: 'permanent', message: 'the source answered HTTP 401' });
  });

  test('a wrong password does not pass', async () => {
    const source = open('nivoda', { ...sandbox.feedConfig('any'), password: 'wrong' });
    expect(await failureOf(source)).toMatchObject({
      kind: 'permanent',
      message: expect.stringContaining('Wrong username or password'),
    });
    expect(await source.plan(null, never)).toMatchObject({ kind: 'permanent' });
  });

  test('a server that is not there may come back', async () => {
    const gone = await startSandbox();
    await gone.stop();
    const source = open('nivoda', gone.feedConfig('any'));
    expect(await failureOf(source)).toMatchObject({
      kind: 'transient',
      message: expect.stringContaining('ECONNREFUSED'),
    });
  });

  test('a caller that gives up is told so, not answered', async () => {
    const { source } = openFeed({ faults: 'hang' });
    const held = sandbox.held();
    const abort = new AbortController();
    const page = source.fetchPage(FIRST_PAGE, abort.signal);
    await expect.poll(() => sandbox.held()).toBe(held + 1);
    abort.abort();
    await expect(page).rejects.toThrow('aborted');
  });
});

test('garbage is set aside, record by record', async () => {
  const { source } = openFeed({ size: 300, faults: 'garbage:10' });
  const { ranges } = await planOf(source);
  const records = (await Promise.all(ranges.map((range) => readRange(source, range)))).flatMap(
    (read) => read.records,
  );
  expect(records).toHaveLength(300);
  const reasons = records.flatMap((record) => (record.reason === undefined ? [] : [record.reason]));
  expect(new Set(reasons)).toEqual(
    new Set([
      'the record is no object',
      'the record has no usable id',
      'the record has a character that cannot be stored',
    ]),
  );
});
