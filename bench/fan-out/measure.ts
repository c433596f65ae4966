// One measurement: a contender's server and its subscribers, each in a process of its own, and this process,
// which commits the events.

import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Database } from '../../src/store/db.js';
import { appendRunLines } from '../../src/store/ledger.js';
import { findRunHead } from '../../src/store/run.js';
import { now, type Contender, type Expected, type Proven, type Usage } from './protocol.js';

export interface Stage {
  readonly db: Database;
  readonly databaseUrl: string;
  readonly runId: string;
}

export interface Load {
  readonly subscribers: number;
  /** Committed as fast as they can be, for throughput. */
  readonly burst: number;
  /** Committed one by one, for latency. */
  readonly paced: number;
}

export interface Measurement {
  readonly deliveriesPerSecond: number;
  /** Microseconds of the server's processor time. */
  readonly cpuPerDelivery: number;
  readonly p50: number;
  readonly p99: number;
  readonly bytesPerConnection: number;
}

const LINES_PER_COMMIT = 10;
/** Paced events ask for this many deliveries a second: well below what any contender can do. */
const PACED_DELIVERIES_PER_SECOND = 5_000;
const WARM_UP_EVENTS = 10;
/** How long it may take until all subscribers hear what is committed. */
const GATHERING_MS = 60_000;
/** Longer than anything that is waited for here takes. */
const HEARING_MS = 600_000;

export async function measure(stage: Stage, contender: Contender, load: Load): Promise<Measurement> {
  const { runId, databaseUrl } = stage;
  const after = await findLastSeq(stage);
  const server = start('server', { contender, databaseUrl, runId, after });
  const { port } = await hear<{ port: number }>(server, 'port');
  const idle = await usageOf(server);
  const url = `ws://127.0.0.1:${port}/graphql`;
  const count = load.subscribers;
  const isRaw = contender.startsWith('raw');
  const subscribers = start('subscribers', { url, isRaw, runId, count, after });
  try {
    await untilAllHear(stage, subscribers);
    const connected = await usageOf(server);
    await deliver(stage, subscribers, WARM_UP_EVENTS, false);
    const { p50, p99 } = await deliverPaced(stage, subscribers, load);
    const before = await usageOf(server);
    const began = now();
    const { lastAt } = await deliver(stage, subscribers, load.burst, false);
    const { cpu } = await usageOf(server);
    const deliveries = count * load.burst;
    return {
      deliveriesPerSecond: deliveries / ((lastAt - began) / 1_000),
      cpuPerDelivery: (cpu - before.cpu) / deliveries,
      p50,
      p99,
      bytesPerConnection: (connected.usedBytes - idle.usedBytes) / count,
    };
  } finally {
    await Promise.all([end(subscribers), end(server)]);
  }
}

/** Commits lines until one has come to every subscriber: whoever is measured has begun to be served. */
export async function untilAllHear(stage: Stage, subscribers: ChildProcess): Promise<void> {
  await hear(subscribers, 'subscribed');
  const deadline = now() + GATHERING_MS;
  for (;;) {
    await commit(stage, 1);
    const proven = hear<Proven>(subscribers, 'proven');
    subscribers.send({ type: 'prove', seq: await findLastSeq(stage) });
    const { missing } = await proven;
    if (missing === 0) return;
    if (now() > deadline)
      throw new Error(`${missing} subscribers have not heard the line committed for them`);
  }
}

/** Read before any process starts: what is committed from then on is for all of them. */
export async function findLastSeq({ db, runId }: Stage): Promise<number> {
  const head = await findRunHead(db, { tenantId: 'default' }, runId);
  return head!.seq;
}

export async function deliver(
  stage: Stage,
  to: ChildProcess,
  events: number,
  timed: boolean,
  filler = '',
): Promise<Expected> {
  return expectEvents(to, events, timed, async () => {
    for (let sent = 0; sent < events; sent += LINES_PER_COMMIT) {
      await commit(stage, Math.min(LINES_PER_COMMIT, events - sent), filler);
    }
  });
}

async function deliverPaced(stage: Stage, to: ChildProcess, load: Load): Promise<Expected> {
  const gapMs = (load.subscribers / PACED_DELIVERIES_PER_SECOND) * 1_000;
  return expectEvents(to, load.paced, true, async () => {
    for (let sent = 0; sent < load.paced; sent += 1) {
      await commit(stage, 1);
      await delay(gapMs);
    }
  });
}

async function expectEvents(
  subscribers: ChildProcess,
  events: number,
  timed: boolean,
  commitAll: () => Promise<void>,
): Promise<Expected> {
  subscribers.send({ type: 'expect', events, timed });
  const [expected] = await Promise.all([hear<Expected>(subscribers, 'expected'), commitAll()]);
  return expected;
}

function commit({ db, runId }: Stage, count: number, filler = ''): Promise<void> {
  const line = {
    type: 'log',
    level: 'INFO' as const,
    message: 'price of sku-12345 set to 1,499',
    payload: { targetId: '123456', externalId: 'sku-12345', attempt: 1, sentAt: now(), filler },
  };
  const lines = Array.from({ length: count }, () => line);
  return db.transaction('bench', (connection) => appendRunLines(connection, 'RULE', runId, lines));
}

export function start(name: string, task: object): ChildProcess {
  const file = fileURLToPath(new URL(`./${name}.ts`, import.meta.url));
  return fork(file, [JSON.stringify(task)], { execArgv: ['--import', 'tsx', '--expose-gc'] });
}

export function usageOf(server: ChildProcess): Promise<Usage> {
  const answer = hear<Usage>(server, 'usage');
  server.send({ type: 'usage' });
  return answer;
}

/** The next message of a type; any other, the end of the process, or none is a failure of the measurement. */
export async function hear<T>(child: ChildProcess, type: string): Promise<T> {
  const gone = new AbortController();
  const onExit = (code: number | null): void =>
    gone.abort(new Error(`a process of the benchmark ended with ${code}`));
  child.once('exit', onExit);
  const patience = setTimeout(() => gone.abort(new Error(`${type} has not come`)), HEARING_MS);
  try {
    const [message] = (await once(child, 'message', { signal: gone.signal })) as [{ type: string }];
    if (message.type !== type) throw new Error(`expected ${type}, heard ${JSON.stringify(message)}`);
    return message as T;
  } finally {
    clearTimeout(patience);
    child.off('exit', onExit);
  }
}

export async function end(child: ChildProcess): Promise<void> {
  child.removeAllListeners('exit');
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  child.kill('SIGKILL');
  await exited;
}
