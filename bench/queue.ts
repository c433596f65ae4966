// How fast one process drains a queue, beside graphile-worker, pg-boss and the bare limit, and beside the same limit
// where each job leaves its lines in a history, as ours do and the peers' do not.
// `npm run bench -- queue [--quick]`. All use the same durable PostgreSQL, each in a database of its own, and take
// turns, so that a busy moment of the machine hits all of them; the figures are medians over the rounds.

import pg from 'pg';
import { createDatabase, median, MIGRATIONS, withPostgres } from './lib/stage.js';
import { BareLimit } from './queue/bare-limit.js';
import type { Contender } from './queue/contender.js';
import { GraphileWorkerContender } from './queue/graphile-worker.js';
import { PgBossContender } from './queue/pg-boss.js';
import { RunledgerContender } from './queue/runledger.js';

const isQuick = process.argv.includes('--quick');
const JOBS = 20_000;
/** Not measured: processes, plans and caches get warm. */
const WARM_UP_JOBS = 2_000;
const ROUNDS = isQuick ? 3 : 5;
/** One job at a time takes long enough with fewer. */
const SLOW_JOBS = isQuick ? 1_000 : 4_000;
const BARS = { vsBestPeer: 1, vsLimit: 0.6 };

async function openContenders(adminUrl: string): Promise<Map<Contender, string>> {
  const entries: [Contender, string][] = [];
  const open = async (name: string, start: (url: string) => Promise<Contender>): Promise<void> => {
    const url = await createDatabase(adminUrl, name);
    entries.push([await start(url), url]);
  };
  await open('runledger', (url) => RunledgerContender.open(url, MIGRATIONS));
  await open('graphile_default', (url) => GraphileWorkerContender.open(url, 'default'));
  await open('graphile_best', (url) => GraphileWorkerContender.open(url, 'best'));
  await open('pg_boss', (url) => PgBossContender.open(url));
  await open('bare_limit', (url) => BareLimit.open(url, MIGRATIONS, 'nothing'));
  await open('bare_history', (url) => BareLimit.open(url, MIGRATIONS, 'history'));
  return new Map(entries);
}

const jobsOf = ({ name }: Contender): number => (name === 'graphile-worker, default' ? SLOW_JOBS : JOBS);

/** Jobs a second through the whole cycle. */
async function measure(contender: Contender, url: string, jobs: number): Promise<number> {
  await contender.fill(jobs);
  const admin = new pg.Client({ connectionString: url });
  await admin.connect();
  await admin.query('VACUUM ANALYZE');
  await admin.query('CHECKPOINT');
  await admin.end();
  const begin = performance.now();
  await contender.drain(jobs);
  return (jobs / (performance.now() - begin)) * 1000;
}

function report(rates: ReadonlyMap<Contender, readonly number[]>): void {
  const rows = [...rates].map(([contender, all]) => ({ contender, rate: median(all), all }));
  for (const { contender, rate, all } of rows) {
    const each = all.map((value) => Math.round(value)).join(' ');
    console.log(`${contender.name.padEnd(28)}${String(Math.round(rate)).padStart(8)} jobs/s   (${each})`);
  }
  const rateOf = (fits: (contender: Contender) => boolean) =>
    Math.max(...rows.filter(({ contender }) => fits(contender)).map(({ rate }) => rate));
  const own = rateOf(({ name }) => name === 'runledger');
  const ratio = (other: number) => Math.round((own / other) * 100) / 100;
  const vsBestPeer = ratio(rateOf(({ isPeer }) => isPeer));
  const vsLimit = ratio(rateOf(({ name }) => name === 'bare limit'));
  const met = vsBestPeer >= BARS.vsBestPeer && vsLimit >= BARS.vsLimit;
  const vsLimitWithHistory = ratio(rateOf(({ name }) => name === 'bare limit, with history'));
  const ratios = { vsBestPeer, vsLimit, vsLimitWithHistory };
  const figures = { jobsPerSecond: Math.round(own), ...ratios, bars: BARS, met };
  console.log(JSON.stringify({ benchmark: 'queue', jobs: JOBS, rounds: ROUNDS, ...figures }));
}

async function compare(adminUrl: string): Promise<void> {
  const contenders = await openContenders(adminUrl);
  const rates = new Map<Contender, number[]>([...contenders.keys()].map((contender) => [contender, []]));
  try {
    for (const [contender, url] of contenders)
      await measure(contender, url, Math.min(WARM_UP_JOBS, jobsOf(contender)));
    for (let round = 0; round < ROUNDS; round += 1) {
      for (const [contender, url] of contenders) {
        rates.get(contender)!.push(await measure(contender, url, jobsOf(contender)));
      }
    }
    for (const contender of contenders.keys()) {
      if (contender instanceof RunledgerContender) await contender.check();
    }
    report(rates);
  } finally {
    for (const contender of contenders.keys()) await contender.close();
  }
}

await withPostgres(compare);
