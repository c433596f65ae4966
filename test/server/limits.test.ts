import { getIntrospectionQuery } from 'graphql';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { GraphqlServer } from '../../src/server/http.js';
import { post, RawClient, startTestServer, type Answer } from './support.js';

let server: GraphqlServer;

beforeAll(async () => {
  ({ server } = await startTestServer({ limits: { cost: 20_000 } }));
});

afterAll(() => server.stop());

function nested(levels: number): string {
  return `{ item ${'{ child '.repeat(levels - 2)} { id } ${'}'.repeat(levels - 2)} }`;
}

function aliased(count: number): string {
  return `{ ${Array.from({ length: count }, (_, n) => `h${n}: hello`).join(' ')} }`;
}

function expectRefused(answer: Answer, text: string): void {
  expect(answer.status).toBe(400);
  expect(answer.json.errors?.[0]?.extensions).toEqual({ code: 'BAD_USER_INPUT' });
  expect(answer.json.errors?.[0]?.message).toContain(text);
  expect(answer.json.data).toBeUndefined();
}

describe('depth', () => {
  test('12 levels pass, 13 do not', async () => {
    expect((await post(server, nested(12))).json.errors).toBeUndefined();
    expectRefused(await post(server, nested(13)), '13 levels deep; at most 12');
  });

  test('is counted through fragments', async () => {
    const deep = nested(12).replace('{ id }', '{ ...F ... on Item { ...F } }');
    expectRefused(
      await post(server, `${deep} fragment F on Item { child { child { id } } }`),
      '14 levels deep',
    );
  });

  test('a document that nests without end gets an answer', async () => {
    for (const levels of [5_000, 20_000]) {
      const answer = await post(server, `{ item ${'{child'.repeat(levels)}{id}${'}'.repeat(levels)} }`);
      expect([answer.status, answer.json.errors?.[0]?.extensions['code']]).toEqual([400, 'BAD_USER_INPUT']);
    }
    const list = await post(server, `{ count(numbers: ${'['.repeat(20_000)}${']'.repeat(20_000)}) }`);
    expect([list.status, list.json.errors?.[0]?.extensions['code']]).toEqual([400, 'BAD_USER_INPUT']);
  });

  test('a fragment that spreads itself is refused', async () => {
    expectRefused(await post(server, '{ item { ...F } } fragment F on Item { child { ...F } }'), 'itself');
  });
});

describe('aliases', () => {
  test('30 pass, 31 do not', async () => {
    expect((await post(server, aliased(30))).json.errors).toBeUndefined();
    expectRefused(await post(server, aliased(31)), '31 aliases; at most 30');
  });

  test('are counted at each spread of a fragment', async () => {
    const spreads = Array.from({ length: 4 }, (_, n) => `i${n}: item { ...F }`).join(' ');
    const fragment = `fragment F on Item { ${Array.from({ length: 8 }, (_, n) => `n${n}: name`).join(' ')} }`;
    expectRefused(await post(server, `{ ${spreads} } ${fragment}`), '36 aliases');
  });
});

describe('cost', () => {
  test('is told with each response', async () => {
    expect((await post(server, '{ hello item { id name } }')).json.extensions?.cost).toEqual({
      requested: 4,
      maximum: 20_000,
    });
  });

  test('a page of 1,000 with all its fields passes; what multiplies pages does not', async () => {
    const page =
      '{ __typename totalCount pageInfo { hasNextPage endCursor } nodes { __typename id name a b c } }';
    const one = await post(server, `query ($n: Int) { items(first: $n) ${page} }`, { n: 1_000 });
    expect(one.json.extensions?.cost.requested).toBe(1 + 1_000 * 7);
    expect(one.json.data).toBeDefined();
    const three = await post(
      server,
      `{ x: items(first: 1000) ${page} y: items(first: 1000) ${page}
      z: items(first: 1000) ${page} }`,
    );
    expectRefused(three, 'costs 21003; at most 20000');
    expect(three.json.extensions?.cost).toEqual({ requested: 21_003, maximum: 20_000 });
  });

  test('counts the default length of a page', async () => {
    expect((await post(server, '{ items { totalCount } }')).json.extensions?.cost.requested).toBe(21);
  });

  test('a field states its own price', async () => {
    expect((await post(server, '{ dear }')).json.extensions?.cost.requested).toBe(15_000);
    expectRefused(await post(server, '{ dear again: dear }'), 'costs 30000');
  });

  test('a negative page pays for nothing', async () => {
    expectRefused(
      await post(server, '{ items(first: -100000) { totalCount } a: dear b: dear }'),
      'costs 30002',
    );
  });

  test('follows the variables, not the first ones that were seen', async () => {
    const query =
      'query ($n: Int!) { items(first: $n) { nodes { id name a b c child { id name a b c child { id name a b c child { id name a b c } } } } } }';
    expect((await post(server, query, { n: 1 })).status).toBe(200);
    expectRefused(await post(server, query, { n: 1_000 }), 'at most 20000');
    expect((await post(server, query, { n: 1 })).status).toBe(200);
  });

  test('fragments that unfold without end are refused', async () => {
    const fragments = Array.from(
      { length: 40 },
      (_, n) => `fragment F${n} on Query { ...F${n + 1} ...F${n + 1} }`,
    );
    const answer = await post(server, `{ ...F0 } ${fragments.join(' ')} fragment F40 on Query { hello }`);
    expectRefused(answer, 'unfold to too many fields');
  });
});

describe('size of the document', () => {
  test('introspection is possible', async () => {
    const answer = await post(
      server,
      getIntrospectionQuery({ inputValueDeprecation: true, specifiedByUrl: true }),
    );
    expect(answer.json.errors).toBeUndefined();
    expect(answer.json.data?.['__schema']).toBeDefined();
  });

  test('too many fields are refused before they are compared', async () => {
    expectRefused(
      await post(server, `{ ${'hello '.repeat(40_000)} }`),
      '40000 fields and fragments; at most 1000',
    );
  });

  test('bulk data in the document: some is fine, too much is refused with its reason, in variables it is fine', async () => {
    const inlined = (count: number): string => `{ count(numbers: [${'1,'.repeat(count)}]) }`;
    expect((await post(server, inlined(40_000))).json.data).toEqual({ count: 40_000 });
    expectRefused(await post(server, inlined(250_000)), '50000 tokens');
    const numbers = Array.from({ length: 250_000 }, () => 1);
    const answer = await post(server, 'query ($numbers: [Int!]!) { count(numbers: $numbers) }', { numbers });
    expect(answer.json.data).toEqual({ count: 250_000 });
  });
});

test('the same limits hold on the WebSocket', async () => {
  const client = await RawClient.connect(server);
  const page =
    '{ nodes { id name a b c child { id name a b c } child { child { id name a b c child { id name a b c } } } } }';
  const refusals = {
    depth: `subscription { items(first: 1) { nodes ${'{ child '.repeat(12)} { id } ${'}'.repeat(12)} } }`,
    aliases: `subscription { ticks { ${Array.from({ length: 31 }, (_, n) => `n${n}: n`).join(' ')} } }`,
    cost: `subscription { items(first: 1000) ${page} }`,
    selections: `subscription { ticks { ${'n '.repeat(1_001)} } }`,
    tokens: `subscription { ticks(count: [${'1 '.repeat(60_000)}]) { n } }`,
    syntax: 'subscription {',
    validation: 'subscription { tocks }',
  };
  const texts = {
    depth: 'levels deep; at most 12',
    aliases: '31 aliases',
    cost: 'at most 20000',
    selections: 'at most 1000',
    tokens: '50000 tokens',
    syntax: 'Syntax Error',
    validation: 'tocks',
  };
  for (const [id, query] of Object.entries(refusals)) {
    client.subscribe(id, query);
    const [answer] = await client.ending(id);
    expect(answer?.type, id).toBe('error');
    expect(JSON.stringify(answer?.payload), id).toContain(texts[id as keyof typeof texts]);
    expect(answer?.payload, id).toMatchObject([{ extensions: { code: 'BAD_USER_INPUT' } }]);
  }
  client.socket.close();
});

test.each([
  'subscription { ... on Subscription @skip(if: true) { ticks { n } } }',
  'subscription { ticks @include(if: false) { n } }',
  'subscription ($no: Boolean = true) { ...F @skip(if: $no) } fragment F on Subscription { ticks { n } }',
  'subscription { ...F } fragment F on Subscription { ... @include(if: false) { ticks { n } } }',
])('%s, which may leave nothing to subscribe to, is refused', async (query) => {
  const client = await RawClient.connect(server);
  client.subscribe('1', query);
  const [answer] = await client.ending('1');
  expect(answer?.payload).toMatchObject([{ extensions: { code: 'BAD_USER_INPUT' } }]);
  client.socket.close();
  const stream = await post(server, query, {}, { accept: 'text/event-stream' });
  expect(stream.text).toContain('"code":"BAD_USER_INPUT"');
});

test('a condition further down leaves a field of each event out', async () => {
  const client = await RawClient.connect(server);
  client.subscribe('1', 'subscription { ticks(count: 1) { n @skip(if: true) visit } }');
  expect(await client.ending('1')).toMatchObject([
    { payload: { data: { ticks: {} } } },
    { type: 'complete' },
  ]);
  client.socket.close();
});
