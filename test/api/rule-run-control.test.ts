// The mutations that act on a run, over HTTP: each in every state of the machine, with what a refusal says
// and leaves, who may ask, and what `allowedActions` promises.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { allowedEvents, nextState } from '../../src/domain/machine.js';
import { ruleRunMachine, type RuleRunEvent, type RuleRunStatus } from '../../src/domain/rule-run.js';
import { graphql } from '../generated/gql.js';
import { pictureOf } from '../store/rows.js';
import { makeRowIn, makeQueuedRun, pathTo, fire, type MachineRow } from '../support/fixtures.js';
import { startApi, type ApiClient, type TestApi } from './support.js';

const Cancel = graphql(`
  mutation CancelRuleRun($input: RuleRunInput!) {
    cancelRuleRun(input: $input) {
      ...ControlledRun
    }
  }
`);
const Pause = graphql(`
  mutation PauseRuleRun($input: RuleRunInput!) {
    pauseRuleRun(input: $input) {
      ...ControlledRun
    }
  }
`);
const Resume = graphql(`
  mutation ResumeRuleRun($input: RuleRunInput!) {
    resumeRuleRun(input: $input) {
      ...ControlledRun
    }
  }
`);
const RetryFailed = graphql(`
  mutation RetryFailedTargets($input: RetryFailedTargetsInput!) {
    retryFailedTargets(input: $input) {
      ...ControlledRun
    }
  }
`);
const RetryAll = graphql(`
  mutation RetryRuleRun($input: RuleRunInput!) {
    retryRuleRun(input: $input) {
      ...ControlledRun
    }
  }
`);
const RollBack = graphql(`
  mutation RollBackRuleRun($input: RollBackRuleRunInput!) {
    rollBackRuleRun(input: $input) {
      ...ControlledRun
    }
  }
`);
graphql(`
  fragment ControlledRun on RuleRunPayload {
    ruleRun {
      id
      status
      paused
      allowedActions
      error
      startAt
      autoRevertAt
      rollback {
        askedAt
        all
        onConflict
        underWay
      }
      counts {
        queued
        failed
        cancelled
      }
    }
    userErrors {
      code
      message
      field
      details
    }
  }
`);
const Actions = graphql(`
  query RuleRunActions($id: ID!) {
    ruleRun(id: $id) {
      status
      allowedActions
    }
  }
`);

let api: TestApi;
let operator: ApiClient;

beforeAll(async () => {
  api = await startApi();
  operator = await api.client('OPERATOR');
});
afterAll(() => api.stop());

interface Asked {
  readonly runId: string;
  readonly idempotencyKey?: string;
}

/** Each mutation, the event it stands for, and how to ask for it. */
const MUTATIONS = {
  cancelRuleRun: {
    event: 'cancel',
    ask: async (client: ApiClient, input: Asked) => (await client.ask(Cancel, { input })).cancelRuleRun,
  },
  pauseRuleRun: {
    event: 'pause',
    ask: async (client: ApiClient, input: Asked) => (await client.ask(Pause, { input })).pauseRuleRun,
  },
  resumeRuleRun: {
    event: 'resume',
    ask: async (client: ApiClient, input: Asked) => (await client.ask(Resume, { input })).resumeRuleRun,
  },
  retryFailedTargets: {
    event: 'retry_failed',
    ask: async (client: ApiClient, input: Asked) =>
      (await client.ask(RetryFailed, { input })).retryFailedTargets,
  },
  retryRuleRun: {
    event: 'retry_all',
    ask: async (client: ApiClient, input: Asked) => (await client.ask(RetryAll, { input })).retryRuleRun,
  },
  rollBackRuleRun: {
    event: 'roll_back',
    ask: async (client: ApiClient, input: Asked) => (await client.ask(RollBack, { input })).rollBackRuleRun,
  },
} as const;

type Mutation = keyof typeof MUTATIONS;

function isAllowed(event: string, state: RuleRunStatus): boolean {
  if (event === 'pause' || event === 'resume') return state === 'QUEUED' || state === 'APPLYING';
  return nextState(ruleRunMachine, state, event as RuleRunEvent) !== null;
}

const CASES = (Object.keys(MUTATIONS) as Mutation[]).flatMap((mutation) =>
  ruleRunMachine.states.map((state) => ({ mutation, state, event: MUTATIONS[mutation].event })),
);

function make(state: string): Promise<MachineRow> {
  return makeRowIn(api.db, api.world.home, ruleRunMachine, state);
}

describe('every mutation in every state', () => {
  test.each(CASES.filter(({ event, state }) => !isAllowed(event, state)))(
    '$mutation is refused in $state',
    async ({ mutation, state, event }) => {
      const row = await make(state);
      const before = await pictureOf(api.db, row);
      const { ruleRun, userErrors } = await MUTATIONS[mutation].ask(operator, { runId: row.id });
      expect(ruleRun).toBeNull();
      expect(userErrors).toMatchObject([
        {
          code: 'ILLEGAL_TRANSITION',
          details: { machine: 'rule_run', event, from: state, allowed: allowedEvents(ruleRunMachine, state) },
        },
      ]);
      expect(await pictureOf(api.db, row)).toEqual(before);
    },
  );

  test.each(CASES.filter(({ event, state }) => isAllowed(event, state)))(
    '$mutation is carried out in $state, once per key',
    async ({ mutation, state }) => {
      const { id: runId } = await make(state);
      const first = await MUTATIONS[mutation].ask(operator, {
        runId,
        idempotencyKey: `${mutation} ${state}`,
      });
      expect(first.userErrors).toEqual([]);
      expect(first.ruleRun).toMatchObject({ id: runId });
      const again = await MUTATIONS[mutation].ask(operator, {
        runId,
        idempotencyKey: `${mutation} ${state}`,
      });
      expect(again).toEqual(first);
    },
  );
});

test.each(Object.keys(MUTATIONS) as Mutation[])(
  '%s is for operators, within their tenant',
  async (mutation) => {
    const { id: runId } = await make('APPLYING');
    const stranger = await api.client('ADMIN', 'other');
    const { userErrors } = await MUTATIONS[mutation].ask(stranger, { runId });
    expect(userErrors).toMatchObject([{ code: 'NOT_FOUND', field: ['input', 'runId'] }]);
    const viewer = await api.client('VIEWER');
    await expect(MUTATIONS[mutation].ask(viewer, { runId })).rejects.toThrow('FORBIDDEN');
  },
);

test('allowedActions names what would not be refused, to those who may ask', async () => {
  const expected: Record<RuleRunStatus, string[]> = {
    PREVIEW: ['QUEUE', 'CANCEL'],
    QUEUED: ['CANCEL', 'PAUSE'],
    APPLYING: ['CANCEL', 'PAUSE'],
    APPLIED: ['ROLL_BACK'],
    PARTIAL: ['RETRY_FAILED', 'ROLL_BACK'],
    FAILED: ['RETRY_ALL'],
    ROLLED_BACK: [],
    CANCELLED: ['ROLL_BACK'],
  };
  const viewer = await api.client('VIEWER');
  for (const state of ruleRunMachine.states) {
    const { id } = await make(state);
    const { ruleRun } = await operator.ask(Actions, { id });
    // A run without targets has none to queue.
    expect(ruleRun!.allowedActions).toEqual(expected[state].filter((action) => action !== 'QUEUE'));
    expect((await viewer.ask(Actions, { id })).ruleRun!.allowedActions).toEqual([]);
  }
});

test('a rollback is told on the run: what was asked, and that it is under way', async () => {
  const { id: runId } = await makeQueuedRun(api.db, api.world.home);
  await api.db.query(
    `UPDATE rule_target SET status = 'APPLYING', lease_owner = 'w', lease_until = now(), lease_epoch = 1 WHERE run_id = $1`,
    [runId],
  );
  await api.db.query(`UPDATE rule_target SET status = 'APPLIED' WHERE run_id = $1`, [runId]);
  for (const { event } of pathTo(ruleRunMachine, 'APPLIED').slice(1)) {
    await fire(api.db, { machine: ruleRunMachine, tenantId: 'default', id: runId, runId }, event);
  }
  const input = { runId, onConflict: 'OVERWRITE' as const };
  const { rollBackRuleRun } = await operator.ask(RollBack, { input });
  expect(rollBackRuleRun.ruleRun).toMatchObject({
    status: 'APPLIED',
    rollback: { all: true, onConflict: 'OVERWRITE', underWay: true },
    allowedActions: ['PAUSE', 'ROLL_BACK', 'RECONCILE'],
  });
});
