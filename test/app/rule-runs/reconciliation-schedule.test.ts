// Reconciliation by the clock, as the server does it by itself: within five minutes of a run's end, an hour
// after, then daily for thirty days. Runs are made to have ended earlier; what their schedule says follows.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { until } from '../../support/app.js';
import { RuleRunWorld, type Answer } from './world.js';

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

let world: RuleRunWorld;

beforeAll(async () => {
  world = await RuleRunWorld.start();
});
afterAll(() => world.stop());

/** The run ended so many seconds ago, and what was due by `lookedAt` seconds after that has been done. */
async function endedAgo(id: string, seconds: number, lookedAt: number): Promise<void> {
  await world.app.db.query(
    `UPDATE rule_run SET queued_at = queued_at - ago, started_at = started_at - ago, finished_at = finished_at - ago,
       reconcile_at = finished_at - ago + $3 * interval '1 second'
     FROM (SELECT $2 * interval '1 second' AS ago) AS past WHERE id = $1`,
    [id, seconds, lookedAt],
  );
}

async function scheduleOf(id: string): Promise<{ reports: Answer[]; nextInSeconds: number | null }> {
  const query = `query ($id: ID!) { ruleRun(id: $id) { reconciliations { trigger totalChecked mismatches } } }`;
  const { reconciliations } = (await world.read(query, { id })).ruleRun;
  const [row] = await world.app.db.query<{ seconds: number | null }>(
    'SELECT round(extract(epoch FROM reconcile_at - finished_at))::float8 AS seconds FROM rule_run WHERE id = $1',
    [id],
  );
  return { reports: reconciliations, nextInSeconds: row!.seconds };
}

interface Occasion {
  readonly after: number;
  /** What the schedule had come to before, in seconds after the end. */
  readonly since: number;
  readonly trigger: string | null;
  /** When the next one is, in seconds after the end; null when there is none. */
  readonly next: number | null;
}

const OCCASIONS: readonly Occasion[] = [
  { after: 0, since: 0, trigger: null, next: MINUTE },
  { after: 2 * MINUTE, since: MINUTE, trigger: 'immediate', next: HOUR },
  { after: HOUR + MINUTE, since: HOUR, trigger: 'delayed', next: DAY },
  { after: DAY + HOUR, since: DAY, trigger: 'periodic', next: 2 * DAY },
  { after: 2 * DAY + HOUR, since: 2 * DAY, trigger: 'periodic', next: 3 * DAY },
  { after: 30 * DAY + HOUR, since: 30 * DAY, trigger: 'periodic', next: null },
  // Nobody was there for a week: one comparison makes up for all that were missed.
  { after: 8 * DAY + HOUR, since: DAY, trigger: 'periodic', next: 9 * DAY },
];

test('every run is looked at when its time has come, and told when the next time is', async () => {
  const runs: (Occasion & { readonly id: string })[] = [];
  for (const occasion of OCCASIONS) {
    const { id } = await world.apply(['drift-1', 'fine-1']);
    runs.push({ ...occasion, id });
  }
  for (const { id, after, since } of runs) await endedAgo(id, after, since);
  for (const { id, trigger, next } of runs) {
    const { reports } = await until(
      () => scheduleOf(id),
      ({ reports: seen, nextInSeconds }) =>
        nextInSeconds === next && seen.length === (trigger === null ? 0 : 1),
    );
    // The same ids were set by later runs of this test: only the last one's price is its own to miss.
    expect(reports).toEqual(trigger === null ? [] : [expect.objectContaining({ trigger, totalChecked: 2 })]);
  }
  // The first look is well within five minutes of the end.
  expect(OCCASIONS[0]!.next).toBeLessThanOrEqual(5 * MINUTE);
});

test('a run that ended with failures is compared twice, what it applied, and not daily', async () => {
  const make = () => world.apply(['part-1', 'fail-1']);
  const runs = [
    { id: (await make()).id, after: 2 * MINUTE, since: MINUTE, next: HOUR },
    { id: (await make()).id, after: HOUR + MINUTE, since: HOUR, next: null },
  ];
  for (const { id, after, since } of runs) await endedAgo(id, after, since);
  for (const { id, next } of runs) {
    const { reports } = await until(
      () => scheduleOf(id),
      ({ reports: seen, nextInSeconds }) => nextInSeconds === next && seen.length === 1,
    );
    expect(reports).toMatchObject([{ totalChecked: 1 }]);
  }
});

test.each([
  ['failed', async () => (await world.apply(['fail-1'])).id],
  [
    'was rolled back',
    async () => {
      const { id } = await world.apply(['undone-1']);
      await world.do('rollBackRuleRun', { runId: id });
      await world.end(id);
      return id;
    },
  ],
])('a run that %s has nothing to compare, and no schedule', async (_, make) => {
  expect(await scheduleOf(await make())).toEqual({ reports: [], nextInSeconds: null });
});
