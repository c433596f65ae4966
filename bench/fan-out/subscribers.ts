// All subscribers of one measurement, in one process: counts what comes, and times it when it is asked to.

import { WebSocket, type RawData } from 'ws';
import {
  API_KEY,
  now,
  percentile,
  SUBSCRIPTION,
  type Expected,
  type ExpectRequest,
  type SubscriberTask,
} from './protocol.js';

const CONNECTING_AT_ONCE = 50;

const task = JSON.parse(process.argv[2]!) as SubscriberTask;
let missing = 0;
let latencies: number[] | null = null;

process.on('message', (request: ExpectRequest) => {
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

function connect(): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(task.url, task.isRaw ? [] : ['graphql-transport-ws']);
    const start = (): void => {
      socket.removeAllListeners('message');
      socket.on('message', receive);
      resolve();
    };
    socket.on('error', reject);
    socket.on('close', (code) => process.send!({ type: 'closed', code }));
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
