// The straight path through the whole product: create, queue, apply against the sandbox over HTTP, roll up.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { TestApp } from '../support/app.js';
import { expectRightEnd, fateOf, queueMix, THOUSAND, waitForEnd } from './mixed-run.js';

let app: TestApp;

beforeAll(async () => {
  app = await TestApp.start();
});
afterAll(() => app.stop());

test('1,000 targets with a few of each sandbox id end right: state, counts, attempts, history, ledger', async () => {
  const id = await queueMix(app.url, THOUSAND);
  await waitForEnd(app.url, id);
  await expectRightEnd(app.db, app.url, id, THOUSAND);

  const { data } = await app.request(TARGETS, { id });
  const { nodes, totalCount } = data.ruleRun.targets;
  expect(totalCount).toBe(1_000);
  for (const { externalId, attempts, history } of nodes) {
    const fate = fateOf(externalId);
    expect({ externalId, attempts }).toEqual({ externalId, attempts: fate.attempts });
    expect(history.map(({ type }: { type: string }) => type)).toEqual(historyOf(fate.attempts, fate.status));
  }
}, 60_000);

const TARGETS = `query ($id: ID!) {
  ruleRun(id: $id) { targets(first: 1000) { totalCount nodes { externalId attempts history { type } } } }
}`;

function historyOf(attempts: number, status: string): string[] {
  const again = Array.from({ length: attempts - 1 }, () => ['rule_target.claim', 'rule_target.retry']).flat();
  const end = status === 'APPLIED' ? 'rule_target.succeed' : 'rule_target.exhaust';
  return ['rule_target.include', ...again, 'rule_target.claim', end];
}
