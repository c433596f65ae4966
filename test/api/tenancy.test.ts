// Another tenant's things do not exist: for every query, mutation and subscription on rule runs, channels and
// sources, by real keys of two tenants.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { recordHeartbeats } from '../../src/store/worker.js';
import { graphql } from '../generated/gql.js';
import { targetsOf } from '../support/fixtures.js';
import { add, create, inputFor, makeRun, queue } from './rule-run-documents.js';
import { RunChanged, RuleRunProgress, RunEvents } from './live-documents.js';
import { changeUntil, startApi, type ApiClient, type TestApi } from './support.js';

const Everything = graphql(`
  query Everything {
    ruleRuns {
      totalCount
      nodes {
        id
      }
    }
    channels {
      id
    }
    sources {
      id
    }
    workers {
      id
    }
  }
`);

const ById = graphql(`
  query ById($id: ID!) {
    node(id: $id) {
      __typename
      id
    }
    ruleRun(id: $id) {
      id
    }
  }
`);

const HERE = { host: 'here', pidSpace: 'here', pid: 1 };

let api: TestApi;
let ours: ApiClient;
let theirs: ApiClient;
let runId: string;
let targetId: string;

beforeAll(async () => {
  api = await startApi();
  ours = await api.client('ADMIN', 'default');
  theirs = await api.client('ADMIN', 'other');
  runId = await makeRun(ours, api.world.home);
  const [row] = await api.db.query<{ id: string }>(
    'SELECT id::text FROM rule_target WHERE run_id = $1 LIMIT 1',
    [runId],
  );
  targetId = row!.id;
  await recordHeartbeats(api.db, HERE, [{ id: 'w-1', state: 'IDLE', activeLeases: 0 }]);
});
afterAll(() => api.stop());

test('lists show the tenant its own', async () => {
  expect(await ours.ask(Everything, {})).toEqual({
    ruleRuns: { totalCount: 1, nodes: [{ id: runId }] },
    channels: [{ id: api.world.home.channelId }],
    sources: [{ id: api.world.home.sourceId }],
    workers: [{ id: 'w-1' }],
  });
  expect(await theirs.ask(Everything, {})).toEqual({
    ruleRuns: { totalCount: 0, nodes: [] },
    channels: [{ id: api.world.other.channelId }],
    sources: [{ id: api.world.other.sourceId }],
    workers: [],
  });
});

test('an id finds what it is of, for its tenant alone', async () => {
  const { channelId, sourceId } = api.world.home;
  const known = { RuleRun: runId, RuleTarget: targetId, Channel: channelId, Source: sourceId };
  for (const [type, id] of Object.entries(known)) {
    expect((await ours.ask(ById, { id })).node).toEqual({ __typename: type, id });
    expect(await theirs.ask(ById, { id })).toEqual({ node: null, ruleRun: null });
  }
});

test('mutations do not find it, and leave it as it was', async () => {
  const notFound = { ruleRun: null, userErrors: [{ code: 'NOT_FOUND' }] };
  expect(await add(theirs, runId, targetsOf(1, 'intruder'))).toMatchObject(notFound);
  expect(await queue(theirs, runId)).toMatchObject(notFound);
  const foreignChannel = inputFor(api.world.other, { channelId: api.world.home.channelId });
  expect(await create(theirs, foreignChannel)).toMatchObject(notFound);
  const [row] = await api.db.query('SELECT status, total_count, last_seq FROM rule_run WHERE id = $1', [
    runId,
  ]);
  expect(row).toEqual({ status: 'PREVIEW', total_count: 3, last_seq: 2 });
});

describe('subscriptions', () => {
  test('to a foreign run are refused as to an unknown one', async () => {
    for (const events of [theirs.watch(RuleRunProgress, { runId }), theirs.watch(RunEvents, { runId })]) {
      const { value } = await events.next();
      expect(value.errors).toMatchObject([{ extensions: { code: 'NOT_FOUND' } }]);
    }
  });

  test('to a board show the tenant its own changes', async () => {
    const own: string[] = [];
    const shown = await changeUntil(theirs.watch(RunChanged, {}), async () => {
      await makeRun(ours, api.world.home);
      own.push(await makeRun(theirs, api.world.other));
    });
    expect(own).toContain(shown.runChanged.id);
  });
});
