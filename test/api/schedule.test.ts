// Schedules over the API.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startApi, type ApiClient, type TestApi } from './support.js';

let api: TestApi;
let client: ApiClient;

beforeAll(async () => {
  api = await startApi();
  client = await api.client();
});
afterAll(() => api.stop());

const FIELDS =
  'id name kind sourceId ruleId channelId runType cron timeZone missed enabled nextAt lastAt lastRunId lastError';
const SAVE = `mutation ($input: SaveScheduleInput!) {
  saveSchedule(input: $input) { schedule { ${FIELDS} nextTimes(count: 3) } userErrors { code field message } }
}`;

interface Saved {
  readonly saveSchedule: {
    readonly schedule: Record<string, unknown> | null;
    readonly userErrors: readonly { readonly code: string; readonly field: readonly string[] }[];
  };
}

async function save(input: object, as = client): Promise<Saved['saveSchedule']> {
  const { data, errors } = await as.send<Saved>(SAVE, { input });
  if (!data) throw new Error(JSON.stringify(errors));
  return data.saveSchedule;
}

const pipeline = (overrides: object = {}) => ({
  name: 'nightly',
  kind: 'PIPELINE',
  sourceId: api.world.home.sourceId,
  cron: '0 3 * * *',
  timeZone: 'Europe/Berlin',
  ...overrides,
});

test('a schedule is saved, changed, listed with its next times, and deleted', async () => {
  const { schedule } = await save(pipeline());
  expect(schedule).toMatchObject({
    kind: 'PIPELINE',
    missed: 'SKIP',
    enabled: true,
    runType: null,
    lastError: null,
  });
  const times = schedule!['nextTimes'] as string[];
  expect(times).toHaveLength(3);
  expect(times[0]).toBe(schedule!['nextAt']);
  expect(times.every((time) => Date.parse(time) > Date.now())).toBe(true);
  const changed = await save(
    pipeline({ id: schedule!['id'], missed: 'ONCE', runType: 'FULL', enabled: false }),
  );
  expect(changed.schedule).toMatchObject({
    id: schedule!['id'],
    missed: 'ONCE',
    runType: 'FULL',
    nextAt: null,
    nextTimes: [],
  });
  const listed = await client.send<{ schedules: { name: string }[] }>('{ schedules { name nextTimes } }');
  expect(listed.data!.schedules).toEqual([{ name: 'nightly', nextTimes: [] }]);
  const gone = await client.send(
    'mutation ($id: ID!) { deleteSchedule(input: { id: $id }) { userErrors { code } } }',
    { id: schedule!['id'] },
  );
  expect(gone.data).toEqual({ deleteSchedule: { userErrors: [] } });
});

describe('refusals', () => {
  test.each([
    ['a cron line that never comes true', { cron: '0 0 31 6 *' }, ['input', 'cron']],
    ['a cron line that cannot be read', { cron: 'daily' }, ['input', 'cron']],
    ['a zone that there is not', { timeZone: 'Nowhere' }, ['input', 'timeZone']],
    ['no source', { sourceId: null }, ['input', 'sourceId']],
    ['a rule for a pipeline', { ruleId: 'x' }, ['input', 'ruleId']],
    ['no name', { name: '' }, ['input', 'name']],
  ])('%s', async (_, overrides, field) => {
    expect(await save(pipeline(overrides))).toMatchObject({
      schedule: null,
      userErrors: [{ code: 'INVALID_INPUT', field }],
    });
  });

  test('what is another tenant’s is not found', async () => {
    const foreign = await save(pipeline({ sourceId: api.world.other.sourceId }));
    expect(foreign.userErrors).toMatchObject([{ code: 'NOT_FOUND', field: ['input', 'sourceId'] }]);
    const { schedule } = await save(pipeline({ name: 'mine' }));
    const other = await api.client('ADMIN', 'other');
    const input = pipeline({ id: schedule!['id'], sourceId: api.world.other.sourceId });
    expect((await save(input, other)).userErrors).toMatchObject([
      { code: 'NOT_FOUND', field: ['input', 'id'] },
    ]);
    const { data } = await other.send(
      'mutation ($id: ID!) { deleteSchedule(input: { id: $id }) { userErrors { code } } }',
      {
        id: schedule!['id'],
      },
    );
    expect(data).toEqual({ deleteSchedule: { userErrors: [{ code: 'NOT_FOUND' }] } });
    expect((await save(pipeline({ name: 'mine' }))).userErrors).toMatchObject([
      { code: 'CONFLICT', field: ['input', 'name'] },
    ]);
  });

  test('too many times', async () => {
    const { errors } = await client.send('{ schedules { nextTimes(count: 101) } }');
    expect(errors).toMatchObject([{ extensions: { code: 'BAD_USER_INPUT' } }]);
  });
});
