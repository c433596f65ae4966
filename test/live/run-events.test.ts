// runEvents through the whole server, under write load: whatever is cut meanwhile, each reader is sent exactly
// the ledger.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { appendEnd, appendLines, cutListeners, ledgerSeqs } from '../events/support.js';
import { TestApp } from '../support/app.js';
import { makeRuleRun, seedWorld, targetsOf, type World } from '../support/fixtures.js';
import { FOLLOW, followAllWays, WAYS, type Followed } from './readers.js';

let app: TestApp;
let world: World;

beforeAll(async () => {
  app = await TestApp.start({ RUNLEDGER_ROLE: 'api', RUNLEDGER_SANDBOX: 'off' });
  world = await seedWorld(app.db);
});
afterAll(() => app.stop());

const newRun = async (): Promise<string> =>
  (await makeRuleRun(app.db, world.home, { targets: targetsOf(3) })).id;

/** Several writers at once. */
async function write(runId: string, lines: number): Promise<void> {
  const writers = Array.from({ length: 4 }, () => appendLines(app.db, runId, lines / 4));
  await Promise.all(writers);
}

test.each(['a WebSocket', 'an event stream'] as const)(
  'over %s: readers that leave and come back with their last seq miss nothing and get nothing twice',
  async (way) => {
    const runId = await newRun();
    const reading = [0, 0, 1, 2].map((after) => {
      const leavesAfter = (): number => 1 + Math.floor(Math.random() * 40);
      return { after, followed: FOLLOW[way](app.url, runId, { after, leavesAfter }) };
    });
    await write(runId, 800);
    await appendEnd(app.db, runId);
    const ledger = await ledgerSeqs(app.db, runId);
    for (const { after, followed } of reading) {
      const { seqs, connections } = await followed;
      expect(seqs).toEqual(ledger.slice(after));
      expect(connections).toBeGreaterThan(10);
    }
  },
);

test('the listener is cut again and again: nobody misses a line, and nobody is disconnected', async () => {
  const runId = await newRun();
  const reading = followAllWays(app.url, runId);
  let cut = 0;
  for (let round = 0; round < 10; round += 1) {
    await Promise.all([write(runId, 80), cutListeners(app.db).then((listeners) => (cut += listeners))]);
  }
  await appendEnd(app.db, runId);
  const ledger = await ledgerSeqs(app.db, runId);
  expect(cut).toBeGreaterThan(0);
  for (const followed of await reading) expect(followed).toEqual({ seqs: ledger, connections: 1 });
});

test('what is committed while the past is replayed comes after it, whole', async () => {
  const runId = await newRun();
  await write(runId, 4_000);
  // Every writer adds to the ledger while readers are far from its end.
  let reading: Promise<Followed[]> = Promise.resolve([]);
  await new Promise<void>((resolve) => {
    const onLine = ({ seq }: { readonly seq: number }): void => void (seq === 1_000 && resolve());
    reading = followAllWays(app.url, runId, { onLine });
  });
  await write(runId, 2_000);
  await appendEnd(app.db, runId);
  const ledger = await ledgerSeqs(app.db, runId);
  expect(ledger).toHaveLength(2 + 6_000 + 1);
  const followed = await reading;
  expect(followed).toHaveLength(WAYS.length);
  for (const { seqs } of followed) expect(seqs).toEqual(ledger);
});
