// All subscribers of one measurement, in one process: counts what comes, and times it when it is asked to.

import { once } from 'node:events';
import { WebSocket, type RawData } from 'ws';
import {
  API_KEY,
  now,
  percentile,
  SUBSCRIPTION,
  type Closed,
  type DeafenRequest,
  type Expected,
  type ExpectRequest,
  type ListenRequest,
  type SubscriberTask,
} from './protocol.js';

const CONNECTING_AT_ONCE = 50;

const task = JSON.parse(process.argv[2]!) as SubscriberTask;
let missing = 0;
let latencies: number[] | null = null;
const deaf: WebSocket[] = [];

process.on('message', (request: ExpectRequest | DeafenRequest | ListenRequest) => {
  if (request.type === 'deafen') return void deafen();
  if (request.type === 'listen') return void listen();
  missing = request.events * task.count;
  latencies = request.timed ? [] : null;
});

function receive(data: RawData): void {
  if (latencies !== null) latencies.push(now() - readTime(data));
  missing -= 1;
  if (missing === 0) report(now());
}

/** The writer puts its clock into the payload; parsing the rest would only slow the subscribers down. */
function readTime(data: RawData): number {
  return Number(/"sentAt":([\d.]+)/.exec(String(data))?.[1]);
}

function report(lastAt: number): void {
  const sorted = (latencies ?? []).sort((a, b) => a - b);
  const answer: Expected = {
    type: 'expected',
    lastAt,
    p50: percentile(sorted, 0.5),
    p99: percentile(sorted, 0.99),
  };
  process.send!(answer);
}

async function deafen(): Promise<void> {
  const socket = await connect();
  socket.removeAllListeners('message');
  socket.pause();
  deaf.push(socket);
  process.send!({ type: 'deafened' });
}

async function listen(): Promise<void> {
  const codes = deaf.map(async (socket) => {
    const closed = once(socket, 'close') as Promise<[number]>;
    socket.resume();
    return (await closed)[0];
  });
  const answer: Closed = { type: 'closed', codes: await Promise.all(codes) };
  process.send!(answer);
}

function connect(): Promise<WebSocket> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(task.url, task.isRaw ? [] : ['graphql-transport-ws']);
    const start = (): void => {
      socket.removeAllListeners('message');
      socket.on('message', receive);
      resolve(socket);
    };
    socket.on('error', reject);
    // Nobody waits for this message: it ends the measurement.
    socket.on('close', (code) => void (deaf.includes(socket) || process.send!({ type: 'lost', code })));
    socket.once('open', () => {
      if (task.isRaw) start();
      else socket.send(JSON.stringify({ type: 'connection_init', payload: { authorization: API_KEY } }));
    });
    socket.once('message', () => {
      const { runId, after } = task;
      const payload = { query: SUBSCRIPTION, variables: { runId, after } };
      socket.send(JSON.stringify({ id: '1', type: 'subscribe', payload }), () => start());
    });
  });
}

for (let open = 0; open < task.count; open += CONNECTING_AT_ONCE) {
  await Promise.all(Array.from({ length: Math.min(CONNECTING_AT_ONCE, task.count - open) }, connect));
}
process.send!({ type: 'subscribed' });
