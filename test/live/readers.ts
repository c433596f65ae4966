// Readers of a run's ledger through a real server, one per way there is: frames over a WebSocket and events over
// a stream, both by hand so that nothing is mended on the way, and the client that is published. Each goes on
// after the last seq it has when its connection ends, and keeps all that it was sent.
import { on, once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { WebSocket } from 'ws';
import { RunledgerClient } from '../../src/client/index.js';
import { ADMIN_KEY } from '../support/app.js';

interface Line {
  readonly seq: number;
  readonly message: string;
}

interface Result {
  readonly data?: { readonly runEvents: Line } | null;
  readonly errors?: readonly { readonly message: string; readonly extensions: { readonly code: string } }[];
}

/** The lines of one connection; ends with it, or when the signal says so. */
type Read = (url: string, runId: string, after: number, signal: AbortSignal) => AsyncIterable<Line>;

const QUERY = `subscription ($runId: ID!, $after: Int) {
  runEvents(runId: $runId, after: $after) { seq message } }`;

/** Null when the server is about to go: an end like any other. */
function lineOf({ data, errors }: Result): Line | null {
  const [error] = errors ?? [];
  if (error?.extensions.code === 'UNAVAILABLE') return null;
  if (error) throw new Error(`refused: ${JSON.stringify(error)}`);
  return data!.runEvents;
}

async function* readSocket(
  url: string,
  runId: string,
  after: number,
  signal: AbortSignal,
): AsyncIterable<Line> {
  const socket = new WebSocket(url.replace('http', 'ws'), 'graphql-transport-ws');
  try {
    const messages = on(socket, 'message', { signal, close: ['close'] });
    await once(socket, 'open', { signal });
    socket.send(JSON.stringify({ type: 'connection_init', payload: { authorization: ADMIN_KEY } }));
    for await (const [data] of messages) {
      const { type, payload } = JSON.parse(String(data)) as { type: string; payload: unknown };
      if (type === 'connection_ack') {
        const variables = { runId, after };
        socket.send(JSON.stringify({ id: '1', type: 'subscribe', payload: { query: QUERY, variables } }));
      } else if (type === 'next' || type === 'error') {
        const line = lineOf(type === 'next' ? (payload as Result) : { errors: payload as never });
        if (line === null) return;
        yield line;
      }
    }
  } finally {
    socket.on('error', () => undefined).terminate();
  }
}

async function* readStream(
  url: string,
  runId: string,
  after: number,
  signal: AbortSignal,
): AsyncIterable<Line> {
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      accept: 'text/event-stream',
      authorization: `Bearer ${ADMIN_KEY}`,
      // What stands in the variables is where it once began.
      ...(after > 0 ? { 'last-event-id': String(after) } : {}),
    },
    body: JSON.stringify({ query: QUERY, variables: { runId, after: 0 } }),
    signal,
  });
  let text = '';
  for await (const chunk of response.body!.pipeThrough(new TextDecoderStream())) {
    const events = (text + String(chunk)).split('\n\n');
    text = events.pop()!;
    for (const event of events) {
      const data = /^data: (.+)$/m.exec(event)?.[1];
      const line = data === undefined ? null : lineOf(JSON.parse(data) as Result);
      if (line !== null) yield line;
    }
  }
}

export interface Followed {
  readonly seqs: readonly number[];
  /** Connections that it took. */
  readonly connections: number;
}

/** How a reader behaves. */
export interface Habits {
  readonly after?: number;
  /** Leaves of its own accord after so many lines, and comes back. */
  readonly leavesAfter?: () => number;
  /** The address that it comes back to every other time. */
  readonly elsewhere?: string;
  /** Told of every line. */
  readonly onLine?: (line: Line) => void;
}

async function followBy(read: Read, url: string, runId: string, habits: Habits): Promise<Followed> {
  const seqs: number[] = [];
  for (let connections = 1; ; connections += 1) {
    const leaving = new AbortController();
    const stay = habits.leavesAfter?.() ?? Infinity;
    const before = seqs.length;
    try {
      const address = connections % 2 === 0 ? (habits.elsewhere ?? url) : url;
      for await (const line of read(address, runId, seqs.at(-1) ?? habits.after ?? 0, leaving.signal)) {
        seqs.push(line.seq);
        habits.onLine?.(line);
        if (line.message === 'end') return { seqs, connections };
        if (seqs.length - before >= stay) break;
      }
    } catch (error) {
      if (error instanceof Error && error.message.startsWith('refused')) throw error;
    } finally {
      leaving.abort();
    }
    if (seqs.length === before) await delay(20);
  }
}

async function followByClient(url: string, runId: string, habits: Habits): Promise<Followed> {
  const seqs: number[] = [];
  let connections = 1;
  const client = new RunledgerClient({
    url,
    apiKey: ADMIN_KEY,
    webSocketImpl: WebSocket,
    firstWaitMs: 10,
    longestWaitMs: 100,
    onRetry: () => void (connections += 1),
  });
  for await (const line of client.runEvents(runId, { after: habits.after ?? 0 })) {
    seqs.push(line.seq);
    habits.onLine?.(line);
    if (line.message === 'end') break;
  }
  client.close();
  return { seqs, connections };
}

type Follow = (url: string, runId: string, habits?: Habits) => Promise<Followed>;

/** Follows a run's ledger to the line that says `end`. */
export const FOLLOW = {
  'a WebSocket': (url, runId, habits = {}) => followBy(readSocket, url, runId, habits),
  'an event stream': (url, runId, habits = {}) => followBy(readStream, url, runId, habits),
  'the client': (url, runId, habits = {}) => followByClient(url, runId, habits),
} satisfies Record<string, Follow>;

export const WAYS = Object.keys(FOLLOW) as (keyof typeof FOLLOW)[];

/** One reader of each kind. */
export function followAllWays(url: string, runId: string, habits: Habits = {}): Promise<Followed[]> {
  return Promise.all(WAYS.map((way) => FOLLOW[way](url, runId, habits)));
}
