// How cheaply one event of a run reaches many subscribers, beside raw ws (the limit), graphql-ws with a plain
// iterator per client, and mercurius. `npm run bench -- fan-out [--quick]`. The contenders take turns, so that
// a busy moment of the machine hits all of them; the figures are medians over the rounds. Events are committed
// ten at a time, as a runner's batches are; what Runledger has for a client at once goes out in one write, which
// `raw` does not do and can be beaten by. `raw-joined` does: nothing on ws gets past that one.

import { registerChannel } from '../src/store/channel.js';
import { Database } from '../src/store/db.js';
import { migrate } from '../src/store/migrate.js';
import { newId } from '../src/store/id.js';
import { measureDeaf, type DeafLoad } from './fan-out/deaf.js';
import { measure, type Load, type Measurement, type Stage } from './fan-out/measure.js';
import { CONTENDERS, type Contender } from './fan-out/protocol.js';
import { median, MIGRATIONS, withPostgres } from './lib/stage.js';

const ROUNDS = 3;
/** Where the bar is set, and the ratios are told for. */
const JUDGED_SUBSCRIBERS = 1_000;

const QUICK: readonly Load[] = [{ subscribers: 1_000, burst: 100, paced: 10 }];
const FULL: readonly Load[] = [
  { subscribers: 100, burst: 2_000, paced: 200 },
  { subscribers: 1_000, burst: 300, paced: 40 },
  { subscribers: 5_000, burst: 60, paced: 10 },
];

const QUICK_DEAF: DeafLoad = { readers: 20, events: 3_000, fillerBytes: 4_000 };
const FULL_DEAF: DeafLoad = { readers: 100, events: 30_000, fillerBytes: 400 };

async function prepareRun(db: Database): Promise<string> {
  await registerChannel(db, { tenantId: 'default', name: 'bench', kind: 'shopify', config: {} });
  const id = newId();
  await db.query(
    `INSERT INTO rule_run (id, tenant_id, channel_id, actor, correlation_id)
     SELECT $1, 'default', id, 'bench', 'bench' FROM channel LIMIT 1`,
    [id],
  );
  return id;
}

async function measureAll(stage: Stage, load: Load): Promise<Map<Contender, Measurement>> {
  const rounds = new Map<Contender, Measurement[]>(CONTENDERS.map((contender) => [contender, []]));
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const contender of CONTENDERS) {
      const measurement = await measure(stage, contender, load).catch((cause: unknown) => {
        throw new Error(`${contender} could not be measured`, { cause });
      });
      rounds.get(contender)!.push(measurement);
    }
  }
  return new Map([...rounds].map(([contender, all]) => [contender, medianOf(all)]));
}

function medianOf(all: readonly Measurement[]): Measurement {
  const of = (key: keyof Measurement): number => median(all.map((each) => each[key]));
  return {
    deliveriesPerSecond: of('deliveriesPerSecond'),
    cpuPerDelivery: of('cpuPerDelivery'),
    p50: of('p50'),
    p99: of('p99'),
    bytesPerConnection: of('bytesPerConnection'),
  };
}

const COLUMNS = [
  'subscribers',
  'contender',
  'deliveries/s',
  'CPU µs each',
  'p50 ms',
  'p99 ms',
  'KiB/connection',
];

function printRow(cells: readonly unknown[]): void {
  console.log(cells.map((cell, index) => String(cell).padEnd(index === 1 ? 12 : 15)).join(''));
}

function print(load: Load, results: ReadonlyMap<Contender, Measurement>): void {
  for (const [contender, result] of results) {
    printRow([
      load.subscribers,
      contender,
      Math.round(result.deliveriesPerSecond),
      result.cpuPerDelivery.toFixed(1),
      result.p50.toFixed(1),
      result.p99.toFixed(1),
      (result.bytesPerConnection / 1024).toFixed(1),
    ]);
  }
}

function ratios(results: ReadonlyMap<Contender, Measurement>): Record<string, number> {
  const rate = (contender: Contender): number => results.get(contender)!.deliveriesPerSecond;
  const against = (contender: Contender): number =>
    Math.round((rate('runledger') / rate(contender)) * 100) / 100;
  return {
    vsRaw: against('raw'),
    vsRawJoined: against('raw-joined'),
    vsGraphqlWs: against('graphql-ws'),
    vsMercurius: against('mercurius'),
    deliveriesPerSecond: Math.round(rate('runledger')),
  };
}

async function measureBesideDeaf(stage: Stage): Promise<Record<string, number>> {
  const load = process.argv.includes('--quick') ? QUICK_DEAF : FULL_DEAF;
  const { closeCode, growthMiB, peakMiB, ...measured } = await measureDeaf(stage, load);
  const pace = Math.round(measured.pace * 100) / 100;
  console.log(
    `${load.events} events to ${load.readers} readers and one that does not read: it was cut with ${closeCode}, ` +
      `the others got all, at ${pace} times the pace that they have without it; ` +
      `the server's resident memory grew by ${growthMiB} MiB (at most ${peakMiB})`,
  );
  return { deafCloseCode: closeCode, deafPace: pace, deafGrowthMiB: growthMiB, deafPeakMiB: peakMiB };
}

async function run(url: string): Promise<void> {
  await migrate(url, MIGRATIONS);
  const db = new Database({ url });
  try {
    const stage = { db, databaseUrl: url, runId: await prepareRun(db) };
    const judged: Record<string, unknown> = {
      benchmark: 'fan-out',
      subscribers: JUDGED_SUBSCRIBERS,
      rounds: ROUNDS,
    };
    printRow(COLUMNS);
    for (const load of process.argv.includes('--quick') ? QUICK : FULL) {
      const results = await measureAll(stage, load);
      print(load, results);
      if (load.subscribers === JUDGED_SUBSCRIBERS) Object.assign(judged, ratios(results));
    }
    Object.assign(judged, await measureBesideDeaf(stage));
    console.log(JSON.stringify(judged));
  } finally {
    await db.close();
  }
}

await withPostgres(run);
