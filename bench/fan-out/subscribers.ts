// All subscribers of one measurement, in one process: counts what comes, and times it when it is asked to.

import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
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
  type Proven,
  type ProveRequest,
  type SubscriberTask,
} from './protocol.js';

const CONNECTING_AT_ONCE = 50;
/** How long a line may take before another is worth a try. */
const PROOF_MS = 1_000;
/** Nothing comes any more of what is expected: the measurement has failed. */
const SILENCE_MS = 30_000;

const task = JSON.parse(process.argv[2]!) as SubscriberTask;
let missing = 0;
let latencies: number[] | null = null;
const deaf: WebSocket[] = [];
/** The newest line that each has heard, until all are known to hear. */
const newest = new Map<WebSocket, number>();
let missingAtLook = 0;
const watch = setInterval(() => {
  // Nobody waits for this message: it ends the measurement, and says how far it came.
  if (missing > 0 && missing === missingAtLook) process.send!({ type: 'silent', missing, ms: SILENCE_MS });
  missingAtLook = missing;
}, SILENCE_MS);

type Request = ProveRequest | ExpectRequest | DeafenRequest | ListenRequest;

process.on('message', (request: Request) => {
  switch (request.type) {
    case 'prove':
      return void prove(request.seq);
    case 'deafen':
      return void deafen();
    case 'listen':
      return void listen();
    case 'expect':
      missing = request.events * task.count;
      missingAtLook = 0;
      watch.refresh();
      latencies = request.timed ? [] : null;
  }
});

/** That a subscription was asked for says nothing of when it is served; a line that it has heard does. */
async function prove(seq: number): Promise<void> {
  const deadline = now() + PROOF_MS;
  const countMissing = (): number => [...newest.values()].filter((heard) => heard < seq).length;
  while (countMissing() > 0 && now() < deadline) await delay(10);
  const answer: Proven = { type: 'proven', missing: countMissing() };
  if (answer.missing === 0) {
    // It was the last that was committed, so that all that comes from here on is expected.
    for (const socket of newest.keys()) socket.removeAllListeners('message').on('message', receive);
  }
  process.send!(answer);
}

function receive(data: RawData): void {
  if (latencies !== null) latencies.push(now() - readTime(data));
  missing -= 1;
  if (missing === 0) report(now());
}

/** The writer puts its clock into the payload; parsing the rest would only slow the subscribers down. */
function readTime(data: RawData): number {
  return Number(/"sentAt":([\d.]+)/.exec(String(data))?.[1]);
}

function readSeq(data: RawData): number {
  return Number(/"seq":(\d+)/.exec(String(data))?.[1] ?? 0);
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
  newest.delete(socket);
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
      newest.set(socket, 0);
      socket.on('message', (data) => newest.set(socket, readSeq(data)));
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
