// Sources over the API: saved with their credentials encrypted, read by a pipeline run, and no credential in any
// answer or row.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { MASK } from '../../src/domain/settings.js';
import { startSandbox, type Sandbox } from '../../src/sandbox/server.js';
import { SecretBox } from '../../src/store/secret-box.js';
import { TestApp, until } from '../support/app.js';

let app: TestApp;
let sandbox: Sandbox;

beforeAll(async () => {
  sandbox = await startSandbox();
  app = await TestApp.start({ RUNLEDGER_SECRET_KEY: SecretBox.generateKey() });
});
afterAll(async () => {
  await app.stop();
  await sandbox.stop();
});

const SAVE = `mutation ($input: SaveSourceInput!) {
  saveSource(input: $input) { source { id name kind config watermark } userErrors { code message field details } }
}`;

async function save(input: object) {
  return (await app.request(SAVE, { input })).data.saveSource;
}

function nivoda(name: string, overrides: object = {}) {
  return { name, kind: 'nivoda', config: { ...sandbox.feedConfig(name, { size: 70 }), ...overrides } };
}

test('a source is saved, shown with a mask, and read by a run', async () => {
  const { source, userErrors } = await save(nivoda('read'));
  expect(userErrors).toEqual([]);
  expect(source).toMatchObject({ name: 'read', kind: 'nivoda', watermark: null, config: { password: MASK } });
  const start = `mutation ($id: ID!) { startPipelineRun(input: { sourceId: $id }) { pipelineRun { id } } }`;
  const { data } = await app.request(start, { id: source.id });
  const read = `query ($id: ID!) { pipelineRun(id: $id) { status recordsConsolidated source { watermark } } }`;
  const run = await until(
    async () => (await app.request(read, { id: data.startPipelineRun.pipelineRun.id })).data.pipelineRun,
    ({ status }) => ['COMPLETED', 'FAILED'].includes(status),
  );
  expect(run).toMatchObject({ status: 'COMPLETED', recordsConsolidated: 70 });
  const [row] = await app.db.query<{ text: string }>(
    'SELECT source::text AS text FROM source WHERE id = $1',
    [source.id],
  );
  expect(row!.text).toContain(MASK);
  expect(row!.text).not.toContain('"password": "sandbox"');
});

test('a change keeps the credential that comes as its mask', async () => {
  const { source } = await save(nivoda('changed', { password: 'hidden-one' }));
  const changed = await save({ ...nivoda('renamed', { password: MASK }), id: source.id });
  expect(changed).toMatchObject({ source: { id: source.id, name: 'renamed' }, userErrors: [] });
});

describe('refused', () => {
  test.each([
    ['an unknown kind', { name: 'x', kind: 'ftp', config: {} }, 'is one of csv, http-json, ndjson, nivoda'],
    ['the kind of runs that are driven by SQL', { name: 'x', kind: 'external', config: {} }, 'is one of csv'],
    ['settings that are none', { name: 'x', kind: 'nivoda', config: { endpoint: 'x' } }, 'endpoint'],
    ['a config that is no object', { name: 'x', kind: 'nivoda', config: [] }, 'must be a JSON object'],
    [
      'a file where none may be read',
      { name: 'x', kind: 'csv', config: { path: '/etc/passwd' } },
      'RUNLEDGER_FILES_DIR',
    ],
    ['a name that is none', { name: ' ', kind: 'csv', config: {} }, 'name'],
  ])('%s', async (_, input, message) => {
    const { source, userErrors } = await save(input);
    expect(source).toBeNull();
    expect(userErrors).toMatchObject([{ code: 'INVALID_INPUT', message: expect.stringContaining(message) }]);
  });

  test('a name that is taken', async () => {
    await save(nivoda('taken'));
    expect((await save(nivoda('taken'))).userErrors).toMatchObject([
      { code: 'CONFLICT', field: ['input', 'name'] },
    ]);
  });

  test('another kind, and a source of nobody', async () => {
    const { source } = await save(nivoda('kept'));
    const other = { id: source.id, name: 'kept', kind: 'ndjson', config: { url: 'https://example.com/' } };
    expect((await save(other)).userErrors).toMatchObject([
      { code: 'INVALID_INPUT', field: ['input', 'kind'] },
    ]);
    expect((await save({ ...nivoda('none'), id: 'nonsense' })).userErrors).toMatchObject([
      { code: 'NOT_FOUND' },
    ]);
  });

  test('a mask where no credential is stored', async () => {
    expect((await save(nivoda('masked', { password: MASK }))).userErrors).toMatchObject([
      { code: 'INVALID_INPUT' },
    ]);
  });
});
