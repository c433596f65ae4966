// A run whose consolidation failed in the database, repeated over the API.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { registerSource } from '../../src/store/source.js';
import { PipelineWorker } from '../support/feed-world.js';
import { JsonFeed, recordsOf } from '../support/json-feed.js';
import { ConsolidatePipelineRun, readRun, startRun } from './pipeline-run-documents.js';
import { startApi, type TestApi } from './support.js';

let api: TestApi;
let feed: JsonFeed;

beforeAll(async () => {
  api = await startApi();
  feed = await JsonFeed.start(recordsOf(70));
});
afterAll(async () => {
  feed.stop();
  await api.stop();
});

test('a failure leaves the watermark and can be repeated; nothing is doubled', async () => {
  const client = await api.client();
  const sourceId = await registerSource(api.db, {
    tenantId: 'default',
    name: 'repeated',
    kind: 'http-json',
    config: feed.config() as never,
  });
  const watermark = async (): Promise<Date | null> => {
    const [row] = await api.db.query<{ watermark: Date | null }>(
      'SELECT watermark FROM source WHERE id = $1',
      [sourceId],
    );
    return row!.watermark;
  };
  await api.db.query(
    `CREATE FUNCTION refuse_items() RETURNS trigger LANGUAGE plpgsql AS $$
     BEGIN RAISE EXCEPTION 'the catalog is closed'; END $$;
     CREATE TRIGGER refuse_items BEFORE INSERT ON catalog_item FOR EACH ROW EXECUTE FUNCTION refuse_items()`,
  );
  const { pipelineRun } = await startRun(client, { sourceId });
  const id = pipelineRun!.id;
  const worker = new PipelineWorker(api.db, 'w1');
  await worker.drain();
  expect(await readRun(client, id)).toMatchObject({
    status: 'FAILED',
    error: 'consolidation broke: the catalog is closed',
    recordsProcessed: 70,
    recordsConsolidated: 0,
    watermarkAfter: null,
  });
  expect(await watermark()).toBeNull();

  await api.db.query('DROP TRIGGER refuse_items ON catalog_item');
  const { consolidatePipelineRun } = await client.ask(ConsolidatePipelineRun, { runId: id });
  expect(consolidatePipelineRun).toMatchObject({ pipelineRun: { status: 'CONSOLIDATING' }, userErrors: [] });
  await worker.drain();
  expect(await readRun(client, id)).toMatchObject({
    status: 'COMPLETED',
    error: null,
    recordsProcessed: 70,
    recordsConsolidated: 70,
  });
  expect(await watermark()).not.toBeNull();
  const [counted] = await api.db.query(
    `SELECT (SELECT count(*)::int FROM catalog_item WHERE source_id = $1) AS items,
       (SELECT count(*)::int FROM raw_item WHERE source_id = $1) AS raw`,
    [sourceId],
  );
  expect(counted).toEqual({ items: 70, raw: 70 });
});
