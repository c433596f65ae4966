// What a client may rely on whatever it asks: who asked and under which name, keys that make a repeat
// harmless, a queue before every apply, and what holds of every run and target at its end.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { idsOf, RuleRunWorld, targetsFor, type Answer } from './world.js';

const MAX_ATTEMPTS = 3;

let world: RuleRunWorld;

beforeAll(async () => {
  world = await RuleRunWorld.start({ RUNLEDGER_CALL_TIMEOUT_MS: '500' });
});
afterAll(() => world.stop());

describe('a run tells', () => {
  const practice = { actor: 'user-7', correlationId: 'request-42', source: 'api' };

  test('who made it, where the wish came from, and the name it is tracked by', async () => {
    const id = await world.create(['a'], { metadata: practice });
    expect(await world.run(id)).toMatchObject({
      actor: expect.stringMatching(/^key:/),
      source: 'api',
      correlationId: 'request-42',
      metadata: practice,
    });
    const { ruleRuns } = await world.read(
      '{ ruleRuns(filter: { correlationId: "request-42" }) { totalCount nodes { id } } }',
    );
    expect(ruleRuns).toEqual({ totalCount: 1, nodes: [{ id }] });
  });

  test.each<[string, object, (id: string) => string]>([
    ['what was said goes before the metadata', { correlationId: 'said', metadata: practice }, () => 'said'],
    ['its id, when nothing was said', {}, (id) => id],
    ['its id, when the metadata has no name', { metadata: { correlationId: 42 } }, (id) => id],
    ['its id, when the metadata has an empty one', { metadata: { correlationId: ' ' } }, (id) => id],
  ])('its correlation id: %s', async (_, input, expected) => {
    const id = await world.create([], input);
    expect((await world.run(id)).correlationId).toBe(expected(id));
  });
});

test('no run begins anywhere but in PREVIEW', async () => {
  const { errors } = await world.app.request(
    `mutation ($input: CreateRuleRunInput!) { createRuleRun(input: $input) { ruleRun { id } } }`,
    { input: { channelId: world.channelId, targets: [], status: 'APPLYING' } },
  );
  expect(errors).toMatchObject([{ extensions: { code: 'BAD_USER_INPUT' } }]);
  expect((await world.run(await world.create(['a']))).status).toBe('PREVIEW');
});

describe('the same key', () => {
  test('many at once, with the same input, are one run, queued once and applied once', async () => {
    const input = { channelId: world.channelId, targets: targetsFor(idsOf('k', 20)), idempotencyKey: 'once' };
    const runs = await Promise.all(Array.from({ length: 6 }, () => world.do('createRuleRun', input)));
    const [runId] = new Set(runs.map(({ id }) => id));
    expect(new Set(runs.map(({ id }) => id)).size).toBe(1);
    const queue = { runId, idempotencyKey: 'queue once' };
    await Promise.all(Array.from({ length: 6 }, () => world.do('queueRuleRun', queue)));
    await world.end(runId);
    const types = await world.types(runId);
    expect(types.filter((type) => type === 'rule_run.queue')).toHaveLength(1);
    expect(types.filter((type) => type === 'rule_target.succeed')).toHaveLength(20);
  });

  test('many at once, with other inputs, are one run and refusals', async () => {
    const { channelId } = world;
    const answers = await Promise.all(
      idsOf('m', 5).map((id) =>
        world.ask('createRuleRun', { channelId, targets: targetsFor([id]), idempotencyKey: 'other' }),
      ),
    );
    const made = answers.filter(({ ruleRun }) => ruleRun !== null);
    expect(made).toHaveLength(1);
    for (const { ruleRun, userErrors } of answers) {
      if (ruleRun !== null) continue;
      expect(userErrors).toMatchObject([
        { code: 'IDEMPOTENCY_MISMATCH', details: { runId: made[0].ruleRun.id } },
      ]);
    }
  });
});

test('a run that ended in part says so: how many failed, and that they may be retried or the rest undone', async () => {
  const { status, counts, progress, allowedActions } = await world.apply(['a', 'b', 'fail-1']);
  expect({ status, progress }).toEqual({ status: 'PARTIAL', progress: 1 });
  expect(counts).toMatchObject({ total: 3, applied: 2, failed: 1 });
  expect(allowedActions).toEqual(expect.arrayContaining(['RETRY_FAILED', 'ROLL_BACK', 'RECONCILE']));
});

describe('at its end', () => {
  const MIX = [
    'a',
    'b',
    'flaky1-1',
    'flaky2-1',
    'down-1',
    'fail-1',
    'auth-1',
    'throttle-1',
    'hang-1',
    'drift-1',
  ];

  test('a run was queued, then started, then finished', async () => {
    const { createdAt, queuedAt, startedAt, finishedAt } = await world.apply(MIX);
    const times = [createdAt, queuedAt, startedAt, finishedAt].map((time) => Date.parse(time));
    expect(times).toEqual(times.toSorted((a, b) => a - b));
  });

  test('a target has made no more attempts than it may, and an applied one tells when it was', async () => {
    const { id } = await world.apply(MIX);
    const targets = [...(await world.targets(id)).values()];
    expect(targets).toHaveLength(MIX.length);
    for (const { status, attempts, appliedAt, failedAt } of targets) {
      expect(attempts).toBeGreaterThanOrEqual(1);
      expect(attempts).toBeLessThanOrEqual(MAX_ATTEMPTS);
      expect(appliedAt !== null).toBe(status === 'APPLIED');
      expect(failedAt !== null).toBe(status === 'FAILED');
    }
  });

  test('a run is APPLIED only when every target is', async () => {
    expect(await world.apply(['a', 'flaky2-1', 'drift-1'])).toMatchObject({
      status: 'APPLIED',
      counts: { total: 3, applied: 3, failed: 0 },
    });
    expect(await world.apply(['a', 'down-1'])).toMatchObject({ status: 'PARTIAL', counts: { failed: 1 } });
    expect(await world.apply(['down-1', 'auth-1'])).toMatchObject({
      status: 'FAILED',
      counts: { failed: 2 },
    });
  });

  test('the ledger has no gap, and tells every change of every target', async () => {
    const { id } = await world.apply(MIX);
    const events = await world.events(id);
    expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => index + 1));
    const last = new Map<string, string>();
    for (const { type, payload } of events as Answer[]) {
      if (!type.startsWith('rule_target.') || payload.to === undefined) continue;
      expect(payload.from).toBe(last.get(payload.targetId) ?? 'PREVIEW');
      last.set(payload.targetId, payload.to);
    }
    for (const target of (await world.targets(id)).values()) expect(last.get(target.id)).toBe(target.status);
  });
});
