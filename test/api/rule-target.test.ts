// What belongs to a rule run, over HTTP: its targets with their histories, and its ledger.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { graphql } from '../generated/gql.js';
import { targetsOf } from '../support/fixtures.js';
import { makeRun, queue } from './rule-run-documents.js';
import { startApi, type ApiClient, type TestApi } from './support.js';

const RuleRunTargets = graphql(`
  query RuleRunTargets($id: ID!, $first: Int, $after: String, $status: [RuleTargetStatus!]) {
    ruleRun(id: $id) {
      targets(first: $first, after: $after, status: $status) {
        totalCount
        nodes {
          id
          runId
          externalId
          status
          before
          after
          attempts
          nextAttemptAt
          errorCode
          errorMessage
          appliedAt
          rolledBackAt
          history {
            type
            seq
            runId
          }
        }
        edges {
          cursor
          node {
            id
          }
        }
        pageInfo {
          hasNextPage
          hasPreviousPage
          startCursor
          endCursor
        }
      }
    }
  }
`);

const RuleRunEvents = graphql(`
  query RuleRunEvents($id: ID!, $first: Int, $after: Int) {
    ruleRun(id: $id) {
      lastSeq
      events(first: $first, after: $after) {
        nodes {
          id
          runId
          runKind
          seq
          type
          level
          message
          payload
          actor
          createdAt
        }
        pageInfo {
          hasNextPage
          hasPreviousPage
          endCursor
        }
      }
    }
  }
`);

let api: TestApi;
let operator: ApiClient;
let viewer: ApiClient;

beforeAll(async () => {
  api = await startApi();
  operator = await api.client('OPERATOR');
  viewer = await api.client('VIEWER');
});
afterAll(() => api.stop());

describe('targets', () => {
  test('are paged in the order they were given, counted, and filtered by status', async () => {
    const id = await makeRun(operator, api.world.home, { targets: targetsOf(5) });
    const page = async (variables: object) =>
      (await viewer.ask(RuleRunTargets, { id, ...variables })).ruleRun!.targets;
    const first = await page({ first: 2 });
    expect(first.totalCount).toBe(5);
    expect(first.nodes[0]).toEqual({
      id: expect.stringMatching(/^\d+$/),
      runId: id,
      externalId: 'sku-1',
      status: 'PREVIEW',
      before: { unit_amount: 1000, currency: 'EUR' },
      after: { unit_amount: 1500, currency: 'EUR' },
      attempts: 0,
      nextAttemptAt: null,
      errorCode: null,
      errorMessage: null,
      appliedAt: null,
      rolledBackAt: null,
      history: [],
    });
    const { pageInfo, edges } = first;
    expect(pageInfo).toMatchObject({ hasNextPage: true, hasPreviousPage: false });
    expect([pageInfo.startCursor, pageInfo.endCursor]).toEqual(edges.map(({ cursor }) => cursor));
    const rest = await page({ first: 1000, after: pageInfo.endCursor });
    expect(rest.nodes.map(({ externalId }) => externalId)).toEqual(['sku-3', 'sku-4', 'sku-5']);
    expect(rest.pageInfo).toMatchObject({ hasNextPage: false, hasPreviousPage: true });
    expect(await page({ status: ['APPLIED', 'FAILED'] })).toMatchObject({ totalCount: 0, nodes: [] });
    expect(await page({ status: ['PREVIEW', 'PREVIEW'] })).toMatchObject({ totalCount: 5 });
  });

  test('tell their own history', async () => {
    const id = await makeRun(operator, api.world.home);
    await queue(operator, id);
    const { nodes } = (await viewer.ask(RuleRunTargets, { id })).ruleRun!.targets;
    for (const { history } of nodes)
      expect(history).toMatchObject([{ type: 'rule_target.include', runId: id }]);
    expect(new Set(nodes.map(({ history }) => history[0]!.seq)).size).toBe(3);
  });
});

describe('events', () => {
  test('are the ledger, without a gap, page by page', async () => {
    const id = await makeRun(operator, api.world.home);
    await queue(operator, id);
    const page = async (variables: object) =>
      (await viewer.ask(RuleRunEvents, { id, ...variables })).ruleRun!;
    const { lastSeq, events } = await page({});
    expect(events.nodes.map(({ seq }) => seq)).toEqual(Array.from({ length: lastSeq }, (_, i) => i + 1));
    expect(events.nodes.find(({ type }) => type === 'rule_run.queue')).toMatchObject({
      runId: id,
      runKind: 'RULE',
      level: 'INFO',
      actor: 'key:default OPERATOR',
      payload: { from: 'PREVIEW', to: 'QUEUED' },
    });
    const second = (await page({ first: 2, after: 2 })).events;
    expect(second.nodes.map(({ seq }) => seq)).toEqual([3, 4]);
    expect(second.pageInfo).toEqual({ hasNextPage: true, hasPreviousPage: true, endCursor: '4' });
  });
});
