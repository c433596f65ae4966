// The documented alerts at their documented figures, on real work: targets that the sandbox refuses or throttles,
// asked for and looked at by GraphQL.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { evaluateAlerts } from '../../../src/store/alert.js';
import { singleForm } from '../../connectors/http/support.js';
import { ScriptedServer } from '../../connectors/support.js';
import { until } from '../../support/app.js';
import { idsOf, RuleRunWorld } from './world.js';

let world: RuleRunWorld;

beforeAll(async () => {
  world = await RuleRunWorld.start();
});
afterAll(() => world.stop());

/** What fires once everything is evaluated. */
async function firing(): Promise<string[]> {
  await evaluateAlerts(world.app.db, () => {});
  const { alerts } = await world.read('{ alerts(status: FIRING) { nodes { policy } } }');
  return alerts.nodes.map(({ policy }: { policy: string }) => policy).sort();
}

async function apply(fine: number, refused: number, name: string): Promise<void> {
  const ids = [...idsOf(`${name}`, fine), ...idsOf(`fail-${name}`, refused)];
  const { counts } = await world.apply(ids);
  expect(counts).toMatchObject({ applied: fine, failed: refused });
}

test('the success rate at 97 % and 90 %, the dead letters at 50 and 100', async () => {
  await apply(97, 3, 'a');
  expect(await firing()).toEqual([]);
  // 107 of 111.
  await apply(10, 1, 'b');
  expect(await firing()).toEqual(['LOW_SUCCESS_RATE']);
  await apply(301, 46, 'c');
  // 408 of 458, and 50 dead letters.
  expect(await firing()).toEqual(['CRITICAL_SUCCESS_RATE', 'LOW_SUCCESS_RATE']);
  await apply(0, 1, 'd');
  expect(await firing()).toContain('DLQ_BACKLOG');
  await apply(0, 49, 'e');
  expect(await firing()).not.toContain('DLQ_CRITICAL');
  await apply(0, 1, 'f');
  expect(await firing()).toContain('DLQ_CRITICAL');
});

test('more than three 429 within five minutes, also in between other answers', async () => {
  for (const n of [1, 2, 3]) await world.apply([`throttle-${n}`, `fine-${n}`]);
  expect(await firing()).not.toContain('THROTTLE_BURST');
  await world.apply(['throttle-4']);
  expect(await firing()).toContain('THROTTLE_BURST');
  const { alerts } = await world.read('{ alerts(policy: [THROTTLE_BURST]) { nodes { value threshold } } }');
  expect(alerts.nodes).toEqual([{ value: 4, threshold: 3 }]);
});

test('a circuit that has opened, by its channel', async () => {
  const server = await ScriptedServer.start(() => ({ status: 429 }));
  const config = { ...singleForm(server.origin), policy: { circuit: { openMs: 3_600_000 } } };
  const channelId = await world.saveChannel('throttling', 'http', config);
  const runId = await world.queue(idsOf('g', 20), { channelId });
  await until(
    () => world.health(channelId),
    ({ circuit }) => circuit === 'OPEN',
  );
  expect(await firing()).toContain('CIRCUIT_OPEN');
  const { alerts } = await world.read('{ alerts(policy: [CIRCUIT_OPEN]) { nodes { subjectId message } } }');
  expect(alerts.nodes).toEqual([
    { subjectId: channelId, message: expect.stringContaining('The channel throttling') },
  ]);
  await world.do('cancelRuleRun', { runId });
  await server.stop();
});
