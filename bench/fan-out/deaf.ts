// What one subscriber that does not read costs: the others' deliveries per second with it and without, the
// server's memory while everything goes out to them, and the code that it is cut with in the end.

import type { ChildProcess } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import { median } from '../lib/stage.js';
import { deliver, end, findLastSeq, hear, start, untilAllHear, usageOf, type Stage } from './measure.js';
import { now, type Closed } from './protocol.js';

export interface DeafLoad {
  readonly readers: number;
  /** Without the one that does not read, and then again with it. */
  readonly events: number;
  /** What each event carries beside its facts. */
  readonly fillerBytes: number;
}

export interface DeafMeasurement {
  readonly closeCode: number;
  /** The others' deliveries per second beside it, over those without it. */
  readonly pace: number;
  readonly growthMiB: number;
  readonly peakMiB: number;
}

const PORTIONS = 10;
const WARM_UP_EVENTS = 200;

export async function measureDeaf(stage: Stage, load: DeafLoad): Promise<DeafMeasurement> {
  const { databaseUrl, runId } = stage;
  const after = await findLastSeq(stage);
  const server = start('server', { contender: 'runledger', databaseUrl, runId, after });
  const { port } = await hear<{ port: number }>(server, 'port');
  const url = `ws://127.0.0.1:${port}/graphql`;
  const subscribers = start('subscribers', { url, isRaw: false, runId, count: load.readers, after });
  try {
    await untilAllHear(stage, subscribers);
    const trial = new Trial(stage, load, server, subscribers, port);
    await trial.deliver(WARM_UP_EVENTS);
    const alone = await trial.run();
    subscribers.send({ type: 'deafen' });
    await hear(subscribers, 'deafened');
    const beside = await trial.run();
    await trial.untilCut();
    const closed = hear<Closed>(subscribers, 'closed');
    subscribers.send({ type: 'listen' });
    const [closeCode] = (await closed).codes;
    const growthMiB = (await residentMiB(server)) - alone.residentMiB;
    const peakMiB = beside.peakMiB - alone.residentMiB;
    return { closeCode: closeCode!, pace: beside.rate / alone.rate, growthMiB, peakMiB };
  } finally {
    await Promise.all([end(subscribers), end(server)]);
  }
}

interface Phase {
  readonly rate: number;
  readonly residentMiB: number;
  readonly peakMiB: number;
}

class Trial {
  private readonly filler: string;

  constructor(
    private readonly stage: Stage,
    private readonly load: DeafLoad,
    private readonly server: ChildProcess,
    private readonly subscribers: ChildProcess,
    private readonly port: number,
  ) {
    this.filler = 'x'.repeat(load.fillerBytes);
  }

  async deliver(events: number): Promise<number> {
    const began = now();
    const { lastAt } = await deliver(this.stage, this.subscribers, events, false, this.filler);
    return (events * this.load.readers) / ((lastAt - began) / 1_000);
  }

  /** The rate is that of the portions at whose end nobody had been cut. */
  async run(): Promise<Phase> {
    const wasDeaf = !(await this.isCut());
    const rates: number[] = [];
    let resident = 0;
    let peakMiB = 0;
    for (let portion = 0; portion < PORTIONS; portion += 1) {
      const rate = await this.deliver(this.load.events / PORTIONS);
      if (portion === 0 || !wasDeaf || !(await this.isCut())) rates.push(rate);
      resident = await residentMiB(this.server);
      peakMiB = Math.max(peakMiB, resident);
    }
    return { rate: median(rates), residentMiB: resident, peakMiB };
  }

  async untilCut(): Promise<void> {
    while (!(await this.isCut())) await delay(200);
  }

  /** The socket that is not read keeps its place among the sockets until it reads; its subscription does not. */
  private async isCut(): Promise<boolean> {
    const metrics = await (await fetch(`http://127.0.0.1:${this.port}/metrics`)).text();
    return Number(/^runledger_subscriptions (\d+)$/m.exec(metrics)?.[1]) === this.load.readers;
  }
}

async function residentMiB(server: ChildProcess): Promise<number> {
  const { residentBytes } = await usageOf(server);
  return Math.round(residentBytes / 1024 ** 2);
}
