// Every row of the tables of rule runs and their targets, walked through the API against the sandbox; and
// every mutation in every state, refused with what would be allowed wherever the machine forbids it.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { allowedEvents } from '../../../src/domain/machine.js';
import { ruleRunMachine, type RuleRunStatus } from '../../../src/domain/rule-run.js';
import { ruleTargetMachine } from '../../../src/domain/rule-target.js';
import { pictureOf } from '../../store/rows.js';
import { idsOf, MUTATIONS, RuleRunWorld, targetsFor, type Answer } from './world.js';

// Calls that hang stay under way for as long as a test looks at them.
const SETTINGS = { RUNLEDGER_CALL_TIMEOUT_MS: '600000', RUNLEDGER_LEASE_MS: '600000' };
const LATER = () => new Date(Date.now() + 3_600_000).toISOString();

let world: RuleRunWorld;

beforeAll(async () => {
  world = await RuleRunWorld.start(SETTINGS);
});
afterAll(() => world.stop());

/** How a run gets into each state by what clients ask and the shop answers. */
const MAKE: Readonly<Record<RuleRunStatus, () => Promise<string>>> = {
  PREVIEW: () => world.create(['a', 'b']),
  QUEUED: () => world.queue(['a', 'b'], { startAt: LATER() }),
  APPLYING: async () => {
    const id = await world.queue(['hang-1', 'a']);
    await world.untilRun(id, ({ counts }) => counts.applied === 1);
    return id;
  },
  APPLIED: async () => (await world.apply(['a', 'b'])).id,
  PARTIAL: async () => (await world.apply(['a', 'fail-1'])).id,
  FAILED: async () => (await world.apply(['auth-1', 'fail-1'])).id,
  ROLLED_BACK: async () => {
    const id = await MAKE.APPLIED();
    await world.do('rollBackRuleRun', { runId: id });
    await world.untilRun(id, ({ status }) => status === 'ROLLED_BACK');
    return id;
  },
  CANCELLED: async () => {
    const id = await MAKE.QUEUED();
    await world.do('cancelRuleRun', { runId: id });
    return id;
  },
};

/** The transitions of a run, or of one target, as its ledger tells them. */
async function stepsOf(id: string, machine: 'rule_run' | 'rule_target', externalId?: string) {
  const lines = externalId ? (await world.target(id, externalId)).history : await world.events(id);
  return lines
    .filter(({ type, payload }: Answer) => type.startsWith(`${machine}.`) && payload.from !== undefined)
    .map(({ payload }: Answer) => `${payload.from} → ${payload.to}`);
}

describe('a run', () => {
  test.each<[RuleRunStatus, readonly string[]]>([
    ['APPLIED', ['PREVIEW → QUEUED', 'QUEUED → APPLYING', 'APPLYING → APPLIED']],
    ['PARTIAL', ['PREVIEW → QUEUED', 'QUEUED → APPLYING', 'APPLYING → PARTIAL']],
    ['FAILED', ['PREVIEW → QUEUED', 'QUEUED → APPLYING', 'APPLYING → FAILED']],
    ['ROLLED_BACK', ['PREVIEW → QUEUED', 'QUEUED → APPLYING', 'APPLYING → APPLIED', 'APPLIED → ROLLED_BACK']],
    ['CANCELLED', ['PREVIEW → QUEUED', 'QUEUED → CANCELLED']],
  ])('comes to %s by the rows of the table', async (state, steps) => {
    const id = await MAKE[state]();
    expect(await world.run(id)).toMatchObject({ status: state });
    expect(await stepsOf(id, 'rule_run')).toEqual(steps);
  });

  test('PARTIAL → APPLYING: failed targets are tried again, and the rest stays applied', async () => {
    const id = await MAKE.PARTIAL();
    await world.do('retryFailedTargets', { runId: id });
    expect(await world.end(id)).toMatchObject({ status: 'PARTIAL', counts: { applied: 1, failed: 1 } });
    const steps = await stepsOf(id, 'rule_run');
    expect(steps.slice(-2)).toEqual(['PARTIAL → APPLYING', 'APPLYING → PARTIAL']);
    expect((await world.target(id, 'a')).attempts).toBe(1);
  });

  test('FAILED → APPLYING: all of it is tried again', async () => {
    const id = await MAKE.FAILED();
    expect((await world.run(id)).error).toContain('Every target failed');
    await world.do('retryRuleRun', { runId: id });
    await world.end(id);
    expect((await stepsOf(id, 'rule_run')).slice(-2)).toEqual(['FAILED → APPLYING', 'APPLYING → FAILED']);
  });

  test('PARTIAL → ROLLED_BACK: what was applied is set back, what failed stays a dead letter', async () => {
    const { id } = await world.apply(['back-1', 'fail-1']);
    expect(await world.price('back-1')).toBe('12.00');
    await world.do('rollBackRuleRun', { runId: id });
    expect(await world.end(id)).toMatchObject({
      status: 'ROLLED_BACK',
      counts: { rolledBack: 1, failed: 1 },
    });
    expect((await stepsOf(id, 'rule_run')).at(-1)).toBe('PARTIAL → ROLLED_BACK');
    expect(await world.price('back-1')).toBe('10.00');
  });

  test.each([
    ['PREVIEW', 'PREVIEW → CANCELLED'],
    ['APPLYING', 'APPLYING → CANCELLED'],
  ] as const)('may be cancelled in %s', async (state, step) => {
    const id = await MAKE[state]();
    await world.do('cancelRuleRun', { runId: id });
    expect((await stepsOf(id, 'rule_run')).at(-1)).toBe(step);
  });

  test('CANCELLED → ROLLED_BACK: what it had applied by then is set back', async () => {
    const id = await world.queue(['kept-1', 'down-1']);
    await world.untilRun(id, ({ counts }) => counts.applied === 1);
    await world.do('cancelRuleRun', { runId: id });
    await world.untilRun(id, ({ counts }) => counts.applying === 0);
    await world.do('rollBackRuleRun', { runId: id });
    expect(await world.end(id)).toMatchObject({ status: 'ROLLED_BACK', counts: { rolledBack: 1 } });
    expect(await world.price('kept-1')).toBe('10.00');
  });
});

describe('a target', () => {
  const CLAIM = 'QUEUED → APPLYING';
  const AGAIN = ['APPLYING → QUEUED', CLAIM];
  const ROWS: [string, readonly string[]][] = [
    ['plain', ['PREVIEW → QUEUED', CLAIM, 'APPLYING → APPLIED']],
    ['flaky2-1', ['PREVIEW → QUEUED', CLAIM, ...AGAIN, ...AGAIN, 'APPLYING → APPLIED']],
    ['down-1', ['PREVIEW → QUEUED', CLAIM, ...AGAIN, ...AGAIN, 'APPLYING → FAILED']],
    ['fail-1', ['PREVIEW → QUEUED', CLAIM, 'APPLYING → FAILED']],
  ];

  test('goes by the rows of the table, each step by who may take it', async () => {
    const { id } = await world.apply(ROWS.map(([externalId]) => externalId));
    for (const [externalId, steps] of ROWS) {
      expect(await stepsOf(id, 'rule_target', externalId)).toEqual(steps);
      const { history } = await world.target(id, externalId);
      const actors = history.map(({ actor }: Answer) => (actor.startsWith('key:') ? 'API' : 'WORKER'));
      expect(actors).toEqual(['API', ...Array<string>(steps.length - 1).fill('WORKER')]);
    }
  });

  test('FAILED → QUEUED when a person asks, from its first attempt', async () => {
    const { id } = await world.apply(['plain', 'down-1']);
    const { id: targetId, failedAt } = await world.target(id, 'down-1');
    expect(failedAt).not.toBeNull();
    await world.do('retryFailedTargets', { runId: id, targetIds: [targetId] });
    await world.end(id);
    const steps = await stepsOf(id, 'rule_target', 'down-1');
    expect(steps.filter((step: string) => step === 'FAILED → QUEUED')).toHaveLength(1);
    expect(await world.target(id, 'down-1')).toMatchObject({ status: 'FAILED', attempts: 3 });
  });

  test('APPLIED → ROLLED_BACK, and CANCELLED with its run', async () => {
    const rolledBack = await MAKE.ROLLED_BACK();
    expect((await stepsOf(rolledBack, 'rule_target', 'a')).at(-1)).toBe('APPLIED → ROLLED_BACK');
    expect((await world.target(rolledBack, 'a')).rolledBackAt).not.toBeNull();
    const cancelled = await MAKE.CANCELLED();
    expect((await stepsOf(cancelled, 'rule_target', 'a')).at(-1)).toBe('QUEUED → CANCELLED');
  });
});

test('the tables that are enforced can be read, and are these', async () => {
  const { stateMachines } = await world.read(
    '{ stateMachines { name initial states transitions { event from to actor condition } } }',
  );
  for (const machine of [ruleRunMachine, ruleTargetMachine]) {
    const shown = stateMachines.find(({ name }: Answer) => name === machine.name);
    expect(shown).toMatchObject({ initial: 'PREVIEW', states: machine.states });
    const pairs = shown.transitions.map(({ event, from, to }: Answer) => [event, from, to]);
    const declared = Object.entries(machine.events).flatMap(([event, { from, to }]) =>
      (from as readonly string[]).map((each) => [event, each, to]),
    );
    expect(pairs.sort()).toEqual(declared.sort());
  }
});

describe.each(ruleRunMachine.states)('in %s', (state) => {
  /** What each mutation is in the machine's words, or ours where it is no event, and where it is allowed. */
  const ASKED: Readonly<Record<string, { readonly event: string; readonly in: readonly RuleRunStatus[] }>> = {
    addRuleTargets: { event: 'add_targets', in: ['PREVIEW'] },
    queueRuleRun: { event: 'queue', in: ['PREVIEW'] },
    cancelRuleRun: { event: 'cancel', in: ['PREVIEW', 'QUEUED', 'APPLYING'] },
    pauseRuleRun: { event: 'pause', in: ['QUEUED', 'APPLYING'] },
    resumeRuleRun: { event: 'resume', in: ['QUEUED', 'APPLYING'] },
    retryFailedTargets: { event: 'retry_failed', in: ['PARTIAL'] },
    retryRuleRun: { event: 'retry_all', in: ['FAILED'] },
    rollBackRuleRun: { event: 'roll_back', in: ['APPLIED', 'PARTIAL', 'CANCELLED'] },
    // One target of the APPLYING run is applied already.
    reconcileRuleRun: { event: 'reconcile', in: ['APPLYING', 'APPLIED', 'PARTIAL'] },
  };

  test('every mutation is named here', () => {
    expect(Object.keys(ASKED)).toEqual(Object.keys(MUTATIONS));
  });

  test('what the machine forbids is refused, with what it allows, and changes nothing', async () => {
    const id = await MAKE[state]();
    const forbidden = Object.keys(ASKED).filter((mutation) => !ASKED[mutation]!.in.includes(state));
    const before = await pictureOf(world.app.db, { machine: ruleRunMachine, runId: id });
    for (const mutation of forbidden) {
      const targets = mutation === 'addRuleTargets' ? { targets: targetsFor(idsOf('late', 2)) } : {};
      const {
        ruleRun = null,
        report = null,
        userErrors,
      } = await world.ask(mutation, { runId: id, ...targets });
      expect({ mutation, shown: ruleRun ?? report }).toEqual({ mutation, shown: null });
      expect(userErrors).toMatchObject([
        {
          code: 'ILLEGAL_TRANSITION',
          field: ['input', 'runId'],
          details: {
            machine: 'rule_run',
            event: ASKED[mutation]!.event,
            from: state,
            allowed: allowedEvents(ruleRunMachine, state),
          },
        },
      ]);
    }
    expect(await pictureOf(world.app.db, { machine: ruleRunMachine, runId: id })).toEqual(before);
  });

  test('what is allowed is carried out', async () => {
    const allowed = Object.keys(ASKED).filter((mutation) => ASKED[mutation]!.in.includes(state));
    for (const mutation of allowed) {
      const id = await MAKE[state]();
      const targets = mutation === 'addRuleTargets' ? { targets: targetsFor(idsOf('more', 2)) } : {};
      await world.do(mutation, { runId: id, ...targets });
      // Nothing of it is to hang on; it may have ended by itself, and then this is refused.
      await world.ask('cancelRuleRun', { runId: id });
    }
  });
});
