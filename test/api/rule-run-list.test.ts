// Lists of rule runs: newest first, by keyset, filtered by everything the filter has, and counted.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { RuleRunFilter } from '../generated/graphql.js';
import { graphql } from '../generated/gql.js';
import { registerChannel } from '../../src/store/channel.js';
import { makeRun, queue } from './rule-run-documents.js';
import { startApi, type ApiClient, type TestApi } from './support.js';

const RuleRuns = graphql(`
  query RuleRuns($first: Int, $after: String, $filter: RuleRunFilter) {
    ruleRuns(first: $first, after: $after, filter: $filter) {
      totalCount
      totalCountIsCapped
      nodes {
        id
        createdAt
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
`);

let api: TestApi;
let admin: ApiClient;
/** Oldest first. */
const ids: string[] = [];
let secondChannelId: string;

beforeAll(async () => {
  api = await startApi();
  admin = await api.client();
  const { home } = api.world;
  await registerChannel(api.db, { tenantId: 'default', name: 'second', kind: 'shopify', config: {} });
  const { data } = await admin.send<{ channels: { id: string; name: string }[] }>('{ channels { id name } }');
  secondChannelId = data!.channels.find(({ name }) => name === 'second')!.id;
  for (const overrides of [
    { projectId: 'spring' },
    { projectId: 'spring', correlationId: 'batch-1', metadata: { ticket: 'OPS-12' } },
    { channelId: secondChannelId },
    { correlationId: 'batch-1' },
    {},
  ]) {
    ids.push(await makeRun(admin, home, overrides));
  }
  await queue(admin, ids[0]!);
});
afterAll(() => api.stop());

const list = async (variables: { first?: number; after?: string | null; filter?: RuleRunFilter }) =>
  (await admin.ask(RuleRuns, variables)).ruleRuns;

describe('filters', () => {
  test.each<[RuleRunFilter | (() => Promise<RuleRunFilter>), number[]]>([
    [{}, [4, 3, 2, 1, 0]],
    [{ projectId: 'spring' }, [1, 0]],
    [{ correlationId: 'batch-1' }, [3, 1]],
    [{ projectId: 'spring', correlationId: 'batch-1' }, [1]],
    [{ status: ['QUEUED'] }, [0]],
    [{ status: ['QUEUED', 'PREVIEW'], projectId: 'spring' }, [1, 0]],
    [{ text: 'ops-12' }, [1]],
    [{ text: 'ticket', projectId: 'default' }, []],
    [{ status: [] }, []],
    [{ channelId: 'garbage' }, []],
    [{ projectId: null, status: null }, [4, 3, 2, 1, 0]],
    [async () => ({ channelId: secondChannelId }), [2]],
    [async () => ({ createdAfter: (await list({})).nodes[2]!.createdAt, projectId: 'default' }), [4, 3]],
    [async () => ({ createdBefore: (await list({})).nodes[2]!.createdAt }), [1, 0]],
  ])('%j', async (filter, expected) => {
    const { nodes, totalCount, totalCountIsCapped } = await list({
      filter: typeof filter === 'function' ? await filter() : filter,
    });
    expect(nodes.map(({ id }) => ids.indexOf(id))).toEqual(expected);
    expect(totalCount).toBe(expected.length);
    expect(totalCountIsCapped).toBe(false);
  });
});

test('pages do not shift while runs are added', async () => {
  const first = await list({ first: 2, filter: { status: ['PREVIEW', 'QUEUED'] } });
  expect(first.pageInfo).toMatchObject({ hasNextPage: true, hasPreviousPage: false });
  expect(first.edges.map(({ node }) => node.id)).toEqual([ids[4], ids[3]]);
  expect(first.edges.map(({ cursor }) => cursor)).toEqual([
    first.pageInfo.startCursor,
    first.pageInfo.endCursor,
  ]);
  const newer = await makeRun(admin, api.world.home);
  const second = await list({ first: 2, after: first.pageInfo.endCursor! });
  expect(second.nodes.map(({ id }) => id)).toEqual([ids[2], ids[1]]);
  const last = await list({ first: 2, after: second.pageInfo.endCursor! });
  expect(last.nodes.map(({ id }) => id)).toEqual([ids[0]]);
  expect(last.pageInfo).toMatchObject({ hasNextPage: false, hasPreviousPage: true });
  expect((await list({ first: 1 })).nodes[0]!.id).toBe(newer);
  const beyond = await list({ after: last.pageInfo.endCursor! });
  expect(beyond).toMatchObject({
    nodes: [],
    pageInfo: { hasNextPage: false, startCursor: null, endCursor: null },
  });
});
