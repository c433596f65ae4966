// Clients that ask for what is not there, talk nonsense or do not read: each is told so, or loses its own socket,
// and a healthy client beside it is sent its ledger as if nobody else were there.
import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { WebSocket } from 'ws';
import { appendRunLines } from '../../src/store/ledger.js';
import { DEFAULT_LIMITS } from '../../src/server/limits.js';
import { appendEnd, appendLines, ledgerSeqs } from '../events/support.js';
import { RawClient, type Message } from '../server/support.js';
import { subscriptionsAt } from '../client/support.js';
import { ADMIN_KEY, TestApp, until } from '../support/app.js';
import { makeRuleRun, seedWorld, type World } from '../support/fixtures.js';
import { FOLLOW, followAllWays, WAYS } from './readers.js';

// Ten seconds in which nothing is taken are long to wait for.
vi.mock(import('../../src/server/limits.js'), async (original) => {
  const limits = await original();
  return { ...limits, DEFAULT_LIMITS: { ...limits.DEFAULT_LIMITS, socketStallMs: 3_000 } };
});

let app: TestApp;
let world: World;

beforeAll(async () => {
  app = await TestApp.start({
    RUNLEDGER_ROLE: 'api',
    RUNLEDGER_SANDBOX: 'off',
    RUNLEDGER_LOG_LEVEL: 'error',
  });
  world = await seedWorld(app.db);
});
afterAll(() => app.stop());

const EVENTS = `subscription ($runId: ID!, $after: Int) {
  runEvents(runId: $runId, after: $after) { seq message payload } }`;

const newRun = async (): Promise<string> => (await makeRuleRun(app.db, world.home, { targets: [] })).id;
const connect = (): Promise<RawClient> => RawClient.connect(app, { authorization: ADMIN_KEY });

/** Does something beside clients that read a run which is being written to, and checks that they got all of it. */
async function besideOthers(misuse: (runId: string) => Promise<void>): Promise<void> {
  const runId = await newRun();
  const others = followAllWays(app.url, runId);
  await Promise.all([misuse(runId), appendLines(app.db, runId, 100)]);
  await appendLines(app.db, runId, 20);
  await appendEnd(app.db, runId);
  const seqs = await ledgerSeqs(app.db, runId);
  expect(await others).toEqual(WAYS.map(() => ({ seqs, connections: 1 })));
}

describe('asking for what is not there', () => {
  const UNKNOWN = '01900000-0000-7000-8000-000000000000';

  test.each<[string, (runId: string) => Promise<object>, string]>([
    ['an unknown run', async () => ({ runId: UNKNOWN }), 'NOT_FOUND'],
    ['an id that is none', async () => ({ runId: '; DROP TABLE run_event' }), 'NOT_FOUND'],
    [
      'another tenant’s run',
      async () => ({ runId: (await makeRuleRun(app.db, world.other)).id }),
      'NOT_FOUND',
    ],
    ['after the end', async (runId) => ({ runId, after: 1_000_000 }), 'BAD_USER_INPUT'],
    ['before the beginning', async (runId) => ({ runId, after: -1 }), 'BAD_USER_INPUT'],
    ['after no number', async (runId) => ({ runId, after: 'x' }), 'BAD_USER_INPUT'],
    ['after more than fits', async (runId) => ({ runId, after: 2 ** 40 }), 'BAD_USER_INPUT'],
  ])('%s', async (_what, variablesOf, code) => {
    await besideOthers(async (runId) => {
      const variables = (await variablesOf(runId)) as Record<string, unknown>;
      const client = await connect();
      client.subscribe('wrong', EVENTS, variables);
      expect(JSON.stringify(await client.ending('wrong'))).toContain(`"code":"${code}"`);
      // The socket is as good as before.
      client.subscribe('right', EVENTS, { runId });
      await client.hear(({ id, type }) => id === 'right' && type === 'next');
      client.socket.close();
      expect(await askStream(variables)).toContain(`"code":"${code}"`);
    });
  });

  async function askStream(variables: object): Promise<string> {
    const response = await fetch(app.url, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'text/event-stream',
        authorization: `Bearer ${ADMIN_KEY}`,
      },
      body: JSON.stringify({ query: EVENTS, variables }),
    });
    return response.text();
  }
});

describe('talking nonsense', () => {
  /** What can be read as JSON, and not written. */
  const DEEP = `${'['.repeat(50_000)}${']'.repeat(50_000)}`;
  const QUERY = 'subscription { runChanged { id } }';

  test.each<[string, string | Buffer, number]>([
    ['words', 'let me in', 4400],
    ['JSON that is no message', '[1, 2, 3]', 4400],
    ['bytes', Buffer.from([0, 159, 146, 150, 255]), 4400],
    ['a message of no known type', '{"type":"shout"}', 4400],
    ['an acknowledgement', '{"type":"connection_ack"}', 4400],
    ['an event', '{"type":"next","id":"1","payload":{"data":{}}}', 4400],
    ['an error', '{"type":"error","id":"1","payload":[{"message":"no"}]}', 4400],
    ['a ping without a bottom', `{"type":"ping","payload":{"n":${DEEP}}}`, 4400],
    [
      'variables without a bottom',
      `{"type":"subscribe","id":"1","payload":{"query":"${QUERY}","variables":{"n":${DEEP}}}}`,
      4400,
    ],
    ['a subscription without a query', '{"type":"subscribe","id":"1","payload":{}}', 4400],
    ['a second greeting', '{"type":"connection_init"}', 4429],
    ['a frame that is too big', 'x'.repeat(DEFAULT_LIMITS.socketMessageBytes + 1), 1009],
  ])('%s', async (_what, frame, code) => {
    await besideOthers(async () => {
      const client = await connect();
      client.socket.send(frame);
      expect((await client.closed).code).toBe(code);
    });
  });

  test('frames that are no WebSocket frames', async () => {
    await besideOthers(async () => {
      const client = await connect();
      const { _socket: stream } = client.socket as unknown as { _socket: NodeJS.WritableStream };
      stream.write(Buffer.alloc(4_096, 0xff));
      expect((await client.closed).code).toBe(1002);
    });
  });

  test('10,000 subscribe messages on one socket', async () => {
    await besideOthers(async (runId) => {
      const client = await connect();
      for (let n = 0; n < 10_000; n += 1) client.subscribe(String(n), EVENTS, { runId });
      expect(await client.closed).toEqual({
        code: 1008,
        reason: 'No more than 100 subscriptions per socket',
      });
    });
  });
});

describe('asking on and on for what cannot be', () => {
  test.each([
    ['queries', () => '{ channels { id } }'],
    ['mutations', () => 'mutation { cancelRuleRun(input: { runId: "1" }) { userErrors { code } } }'],
    ['documents that cannot be read', () => 'subscription {'],
    ['fields that are not there', (n: number) => `subscription { runEvents(runId: "1") { field${n} } }`],
  ])('2,000 %s on one socket', async (_what, queryOf) => {
    await besideOthers(async () => {
      const client = await connect();
      for (let n = 0; n < 2_000; n += 1) client.subscribe(String(n), queryOf(n));
      expect(await client.closed).toEqual({ code: 1008, reason: 'Too many subscriptions were refused' });
      // The first ones were answered.
      expect(JSON.stringify(await client.ending('0'))).toContain('"code":"BAD_USER_INPUT"');
    });
  });

  test('2,000 subscriptions of an unknown run on one socket', async () => {
    await besideOthers(async () => {
      const client = await connect();
      const runId = '01900000-0000-7000-8000-000000000000';
      for (let n = 0; n < 2_000; n += 1) client.subscribe(String(n), EVENTS, { runId });
      expect((await client.closed).code).toBe(1008);
    });
  });
});

describe('not reading', () => {
  const LINE_BYTES = 30_000;

  /** More than the network's own buffers hold. */
  async function writeMuch(runId: string, lines: number): Promise<void> {
    const line = {
      type: 'log',
      level: 'INFO' as const,
      message: 'long',
      payload: { text: 'x'.repeat(LINE_BYTES) },
    };
    for (let written = 0; written < lines; written += 20) {
      const page = Array.from({ length: 20 }, () => line);
      await app.db.transaction('writer', (connection) => appendRunLines(connection, 'RULE', runId, page));
    }
  }

  /** The most that ever waited in one of the server's sockets. */
  function watchBuffers(): { most(): number; stop(): void } {
    const { send } = WebSocket.prototype;
    let most = 0;
    const spy = vi.spyOn(WebSocket.prototype, 'send').mockImplementation(function (this: WebSocket, ...args) {
      Reflect.apply(send, this, args);
      const { _isServer: isServer } = this as unknown as { _isServer: boolean };
      if (isServer) most = Math.max(most, this.bufferedAmount);
    });
    return { most: () => most, stop: () => spy.mockRestore() };
  }

  test.each([
    ['one subscription: cut when nothing was taken for too long', 1],
    ['many: cut at the limit of bytes', 100],
  ])('%s', { timeout: 120_000 }, async (_how, subscriptions) => {
    const runId = await newRun();
    const buffers = watchBuffers();
    const deaf = await connect();
    deaf.socket.pause();
    for (let n = 0; n < subscriptions; n += 1) deaf.subscribe(String(n), EVENTS, { runId });
    const alike = await connect();
    alike.subscribe('all', EVENTS, { runId });
    const others = followAllWays(app.url, runId);
    await writeMuch(runId, 600);
    await appendEnd(app.db, runId);
    const seqs = await ledgerSeqs(app.db, runId);
    expect(await others).toEqual(WAYS.map(() => ({ seqs, connections: 1 })));
    await alike.hear((message) => lineOf(message)?.message === 'end');
    expect(alike.heard.flatMap((message) => lineOf(message)?.seq ?? [])).toEqual(seqs);
    // It learns of its end as soon as it reads, and can go on from where it was.
    const closed = once(deaf.socket, 'close');
    await until(
      () => subscriptionsAt(app),
      (open) => open === 1,
    );
    deaf.socket.resume();
    expect((await closed)[0]).toBe(4413);
    expect(buffers.most()).toBeLessThan(DEFAULT_LIMITS.socketBufferBytes + 2 * LINE_BYTES);
    buffers.stop();
    const last = Math.max(
      0,
      ...deaf.heard.flatMap((message) => (message.id === '0' ? (lineOf(message)?.seq ?? []) : [])),
    );
    const rest = await FOLLOW['a WebSocket'](app.url, runId, { after: last });
    expect(rest.seqs).toEqual(seqs.slice(last));
    alike.socket.close();
  });

  function lineOf({ type, payload }: Message): { seq: number; message: string } | null {
    if (type !== 'next') return null;
    return (payload as { data: { runEvents: { seq: number; message: string } } }).data.runEvents;
  }
});
