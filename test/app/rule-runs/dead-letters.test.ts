// Dead letters against the sandbox: each way in, the report, the list, the files, and the ways out.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ruleRunMachine } from '../../../src/domain/rule-run.js';
import { pictureOf } from '../../store/rows.js';
import { ADMIN_KEY } from '../../support/app.js';
import { RuleRunWorld, type Answer } from './world.js';

let world: RuleRunWorld;

beforeAll(async () => {
  world = await RuleRunWorld.start({ RUNLEDGER_CALL_TIMEOUT_MS: '1500' });
});
afterAll(() => world.stop());

const LETTERS = `query ($projectId: String, $runId: ID, $errorCode: String) {
  deadLetters(first: 1000, projectId: $projectId, runId: $runId, errorCode: $errorCode) {
    totalCount nodes { id runId externalId status errorCode attempts failedAt }
  }
}`;
const letters = async (filter: object) => (await world.read(LETTERS, filter)).deadLetters;

describe('a target becomes one', () => {
  test.each([
    ['after three failed attempts', 'down-1', 3, 'UPSTREAM'],
    ['at once when we are not let in', 'auth-1', 1, 'AUTH'],
    ['at once when the shop refuses it', 'fail-1', 1, 'INVALID'],
    ['after three calls without an answer', 'hang-1', 3, 'TIMEOUT'],
  ])('%s', async (_, externalId, attempts, errorCode) => {
    const { id: runId } = await world.apply(['fine', externalId]);
    expect(await letters({ runId })).toMatchObject({
      totalCount: 1,
      nodes: [{ runId, externalId, status: 'FAILED', attempts, errorCode, failedAt: expect.any(String) }],
    });
  });
});

test('the report and the list of a project have its own, by reason, with what to do', async () => {
  const ids = ['auth-1', 'auth-2', 'fail-1', 'down-1', 'fine'];
  const { id: runId } = await world.apply(ids, { projectId: 'reported' });
  const { report } = await world.ask(
    'drainDeadLetters',
    { projectId: 'reported' },
    'report { total byErrorCode recommendations }',
  );
  expect(report).toMatchObject({ total: 4, byErrorCode: { AUTH: 2, INVALID: 1, UPSTREAM: 1 } });
  expect(report.recommendations).toHaveLength(3);
  expect(report.recommendations[0]).toMatch(/^AUTH \(2\): .*saveChannel/);
  expect(await letters({ projectId: 'reported' })).toMatchObject({ totalCount: 4 });
  const denied = await letters({ runId, errorCode: 'AUTH' });
  expect(denied.nodes.map(({ externalId }: Answer) => externalId).sort()).toEqual(['auth-1', 'auth-2']);
  // A report changes nothing.
  expect((await world.run(runId)).counts.failed).toBe(4);
});

test.each(['ndjson', 'csv'])('they are a file as well: %s', async (form) => {
  const { id: runId } = await world.apply(['fine', 'fail-1', 'auth-1']);
  const url = new URL(`/export/dead-letters.${form}?runId=${runId}`, world.app.url);
  const response = await fetch(url, { headers: { authorization: `Bearer ${ADMIN_KEY}` } });
  expect(response.status).toBe(200);
  const lines = (await response.text()).trim().split(/\r?\n/);
  const letters = form === 'csv' ? lines.slice(1) : lines;
  expect(letters).toHaveLength(2);
  expect(letters.filter((line) => line.includes('fail-1') && line.includes('INVALID'))).toHaveLength(1);
  expect(letters.filter((line) => line.includes('auth-1') && line.includes('AUTH'))).toHaveLength(1);
});

describe('retryFailedTargets', () => {
  test('of some leaves the others dead letters', async () => {
    // The sandbox counts the faults of a target's key: what was down for five calls is up at the sixth.
    const { id: runId } = await world.apply(['flaky5-1', 'flaky5-2', 'fine']);
    const chosen = await world.target(runId, 'flaky5-1');
    const retried = await world.do('retryFailedTargets', { runId, targetIds: [chosen.id] });
    expect(retried.counts).toMatchObject({ failed: 1, applied: 1 });
    expect(await world.end(runId)).toMatchObject({ status: 'PARTIAL' });
    const targets = await world.targets(runId);
    expect(targets.get('flaky5-1')).toMatchObject({
      status: 'APPLIED',
      attempts: 3,
      errorCode: null,
      failedAt: null,
    });
    expect(targets.get('flaky5-2')).toMatchObject({ status: 'FAILED', attempts: 3 });
    expect(await letters({ runId })).toMatchObject({ totalCount: 1, nodes: [{ externalId: 'flaky5-2' }] });
  });

  test('of all brings the run to APPLIED when nothing fails any more', async () => {
    const { id: runId } = await world.apply(['flaky4-1', 'flaky4-2', 'fine']);
    expect(await world.do('retryFailedTargets', { runId })).toMatchObject({
      status: 'APPLYING',
      finishedAt: null,
    });
    expect(await world.end(runId)).toMatchObject({ status: 'APPLIED', counts: { applied: 3, failed: 0 } });
    expect(await letters({ runId })).toEqual({ totalCount: 0, nodes: [] });
  });

  test.each<[string, (own: Answer, foreign: Answer) => string[], string]>([
    ['a target of another run', (own, foreign) => [own.failed, foreign.failed], 'NOT_FOUND'],
    ['a target that did not fail', (own) => [own.failed, own.applied], 'ILLEGAL_TRANSITION'],
    ['an id of nothing', (own) => [own.failed, 'nothing'], 'NOT_FOUND'],
    ['none', () => [], 'INVALID_INPUT'],
  ])('with %s is refused as a whole', async (_, choose, code) => {
    const make = async () => {
      const { id } = await world.apply(['fine', 'fail-1']);
      const targets = await world.targets(id);
      return { id, applied: targets.get('fine').id, failed: targets.get('fail-1').id };
    };
    const [own, foreign] = [await make(), await make()];
    const before = await pictureOf(world.app.db, { machine: ruleRunMachine, runId: own.id });
    const targetIds = choose(own, foreign);
    const { userErrors } = await world.ask('retryFailedTargets', { runId: own.id, targetIds });
    expect(userErrors).toMatchObject([{ code }]);
    if (code === 'ILLEGAL_TRANSITION') {
      expect(userErrors[0].details).toEqual({
        machine: 'rule_target',
        event: 'requeue',
        from: 'APPLIED',
        allowed: ['roll_back'],
        targetId: own.applied,
      });
    }
    expect(await pictureOf(world.app.db, { machine: ruleRunMachine, runId: own.id })).toEqual(before);
  });

  test('again under the same key tries nothing again', async () => {
    const { id: runId } = await world.apply(['fine', 'fail-1']);
    await world.do('retryFailedTargets', { runId, idempotencyKey: 'again' });
    await world.end(runId);
    const { length } = await world.events(runId);
    expect(await world.do('retryFailedTargets', { runId, idempotencyKey: 'again' })).toMatchObject({
      status: 'PARTIAL',
    });
    expect(await world.events(runId)).toHaveLength(length);
  });
});

test('retryRuleRun brings a failed run to what its targets come to then', async () => {
  const { id: runId, status, error } = await world.apply(['flaky4-1', 'fail-1']);
  expect({ status, error }).toEqual({
    status: 'FAILED',
    error: expect.stringContaining('Every target failed'),
  });
  await world.do('retryRuleRun', { runId });
  expect(await world.end(runId)).toMatchObject({
    status: 'PARTIAL',
    error: null,
    counts: { applied: 1, failed: 1 },
  });
});
