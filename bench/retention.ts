// What a year of history costs today's work: how fast one process drains targets beside an empty ledger, beside
// one of millions of lines, and after retention has pruned those.
// `npm run bench -- retention [--quick]`. Two databases on the same durable PostgreSQL, one with the history and
// one without, take turns, so that a busy moment of the machine hits both; the rates are medians over the
// rounds, and so are the ratios.
// What the rounds themselves leave behind is in both.

import pg from 'pg';
import { Database } from '../src/store/db.js';
import { pruneDueRuns } from '../src/store/prune.js';
import { createDatabase, median, MIGRATIONS, withPostgres } from './lib/stage.js';
import { RunledgerContender } from './queue/runledger.js';
import { loadHistory } from './retention/history.js';

const isQuick = process.argv.includes('--quick');
const LINES = isQuick ? 500_000 : 5_000_000;
const TARGETS = isQuick ? 5_000 : 20_000;
const ROUNDS = isQuick ? 3 : 5;
/** Rounds that are not measured: the first ones pay for caches, plans and connections. */
const WARM_UP = 1;
const BAR = 0.9;

class Side {
  static async open(adminUrl: string, name: string): Promise<Side> {
    const url = await createDatabase(adminUrl, name);
    const contender = await RunledgerContender.open(url, MIGRATIONS);
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    return new Side(url, contender, client);
  }

  private constructor(
    readonly url: string,
    private readonly contender: RunledgerContender,
    readonly client: pg.Client,
  ) {}

  /** Targets a second from the first claim to the last settle. */
  async measure(): Promise<number> {
    await this.contender.fill(TARGETS);
    await this.settle();
    const begin = performance.now();
    await this.contender.drain(TARGETS);
    return (TARGETS / (performance.now() - begin)) * 1000;
  }

  /** What goes on in the background anyway is done before the clock starts. */
  async settle(): Promise<void> {
    await this.client.query('VACUUM ANALYZE');
    await this.client.query('CHECKPOINT');
  }

  async ledger(): Promise<{ readonly lines: number; readonly megabytes: number }> {
    const { rows } = await this.client.query<{ lines: number; megabytes: number }>(
      `SELECT (SELECT count(*) FROM run_event)::float8 AS lines,
         round(pg_total_relation_size('run_event') / 1048576.0)::float8 AS megabytes`,
    );
    return rows[0]!;
  }

  /** That nothing was left out for the sake of speed. */
  check(): Promise<void> {
    return this.contender.check();
  }

  async close(): Promise<void> {
    await this.client.end();
    await this.contender.close();
  }
}

interface Rates {
  readonly empty: number[];
  readonly full: number[];
}

/** Rounds of both in turn; who goes first changes. */
async function takeTurns(empty: Side, full: Side): Promise<Rates> {
  const rates: Rates = { empty: [], full: [] };
  for (let round = -WARM_UP; round < ROUNDS; round += 1) {
    const order = [
      [empty, rates.empty],
      [full, rates.full],
    ] as const;
    for (const [side, kept] of round % 2 === 0 ? order : order.toReversed()) {
      const rate = await side.measure();
      if (round >= 0) kept.push(rate);
    }
  }
  return rates;
}

function show(what: string, rates: readonly number[]): void {
  const each = rates.map((value) => Math.round(value)).join(' ');
  console.log(`${what.padEnd(40)}${String(Math.round(median(rates))).padStart(8)} targets/s   (${each})`);
}

/** Of each round by itself: its two measurements are neighbours in time, and the machine is not ours alone. */
function ratioOf({ full, empty }: Rates): number {
  return Math.round(median(full.map((rate, round) => rate / empty[round]!)) * 100) / 100;
}

async function prune(url: string): Promise<{ readonly rows: number; readonly seconds: number }> {
  const db = new Database({ url });
  const begin = performance.now();
  const { rows } = await pruneDueRuns(db);
  await db.close();
  return { rows, seconds: Math.round((performance.now() - begin) / 100) / 10 };
}

async function compare(empty: Side, full: Side): Promise<void> {
  await loadHistory(full.client, LINES);
  await full.settle();
  const loaded = await full.ledger();
  console.log(`history: ${loaded.lines} lines, ${loaded.megabytes} MB with indexes`);
  const beside = await takeTurns(empty, full);
  const before = await full.ledger();
  show('beside an empty ledger', beside.empty);
  show(`beside ${LINES} lines`, beside.full);
  const pruned = await prune(full.url);
  await full.settle();
  const left = await full.ledger();
  console.log(
    `pruned ${pruned.rows} rows in ${pruned.seconds} s, in batches with rests: ` +
      `${before.lines} lines in ${before.megabytes} MB became ${left.lines} in ${left.megabytes} MB`,
  );
  const after = await takeTurns(empty, full);
  const reused = await full.ledger();
  show('beside an empty ledger, again', after.empty);
  show('after pruning', after.full);
  const at5MVsEmpty = ratioOf(beside);
  console.log(
    JSON.stringify({
      benchmark: 'retention',
      lines: LINES,
      targets: TARGETS,
      rounds: ROUNDS,
      targetsPerSecond: Math.round(median(beside.full)),
      at5MVsEmpty,
      prunedVsEmpty: ratioOf(after),
      prunedRowsPerSecond: Math.round(pruned.rows / pruned.seconds),
      // The files keep their size; what comes later finds room in them.
      megabytes: {
        before: before.megabytes,
        after: left.megabytes,
        afterMoreRounds: reused.megabytes,
      },
      bar: BAR,
      met: at5MVsEmpty >= BAR,
    }),
  );
}

async function main(adminUrl: string): Promise<void> {
  const sides: Side[] = [];
  try {
    for (const name of ['without_history', 'with_history']) sides.push(await Side.open(adminUrl, name));
    await compare(sides[0]!, sides[1]!);
    for (const side of sides) await side.check();
  } finally {
    for (const side of sides) await side.close();
  }
}

await withPostgres(main);
