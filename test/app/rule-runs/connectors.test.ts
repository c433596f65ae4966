// Both connectors under a whole run: what each item of a refused call comes to, what a call carries, and that
// nobody is shown a credential.
import { createHmac } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { batchForm, idsIn, singleForm } from '../../connectors/http/support.js';
import { ScriptedShop } from '../../connectors/shopify/support.js';
import { ScriptedServer, type Call } from '../../connectors/support.js';
import { idsOf, RuleRunWorld, type Answer } from './world.js';

let world: RuleRunWorld;

beforeAll(async () => {
  world = await RuleRunWorld.start();
});
afterAll(() => world.stop());

const ITEMS = [...idsOf('good', 15), 'bad', ...idsOf('fine', 14)];

async function expectCulpritAlone(id: string): Promise<void> {
  const targets = [...(await world.targets(id)).values()];
  const failed = targets.filter(({ status }) => status !== 'APPLIED');
  expect(failed).toMatchObject([{ externalId: 'bad', status: 'FAILED', attempts: 1, errorCode: 'INVALID' }]);
  expect(await world.run(id)).toMatchObject({ status: 'PARTIAL', counts: { applied: 29, failed: 1 } });
}

describe('a call that is refused as a whole for good is split until the culprit stands alone', () => {
  test('shopify', async () => {
    const shop = await ScriptedShop.start(({ isWrite, ids }) => {
      if (!isWrite)
        return { body: { data: { nodes: ids.map(() => ({ product: { id: 'gid://shopify/Product/1' } })) } } };
      if (ids.includes('bad')) return { body: { errors: [{ message: 'Variable $variants is not valid' }] } };
      return { body: { data: { productVariantsBulkUpdate: { userErrors: [] } } } };
    });
    const { adminUrl: endpoint, accessToken } = shop;
    const channelId = await world.saveChannel('refusing shop', 'shopify', { endpoint, accessToken });
    const { id } = await world.apply(ITEMS, { channelId });
    await expectCulpritAlone(id);
    expect(shop.writes.filter(({ ids }) => ids.length === 1 && ids[0] === 'bad')).toHaveLength(1);
    await shop.stop();
  });

  test('http', async () => {
    const server = await ScriptedServer.start((call) => {
      const ids = idsIn(call);
      if (ids.includes('bad')) return { status: 422 };
      return { body: { results: ids.map((sku) => ({ sku, status: 'ok' })) } };
    });
    const channelId = await world.saveChannel('refusing endpoint', 'http', batchForm(server.origin));
    const { id } = await world.apply(ITEMS, { channelId });
    await expectCulpritAlone(id);
    await server.stop();
  });
});

test('an http call is made of the templates, signed, and carries the target’s key; nobody is shown a credential', async () => {
  const server = await ScriptedServer.start(() => ({}));
  const config = {
    ...singleForm(server.origin),
    credentials: { token: 's3cret-token', signing: 's3cret-signing' },
    signature: { header: 'X-Signature', credential: 'signing' },
    idempotencyHeader: 'X-Once',
  };
  const channelId = await world.saveChannel('signed', 'http', config);
  const { id } = await world.apply(['a b'], { channelId });
  const [call] = server.calls as [Call];
  expect(call).toMatchObject({ method: 'PUT', path: '/prices/a%20b' });
  expect(JSON.parse(call.body)).toEqual({ price: '12.00', minor: 1200, currency: 'EUR' });
  expect(call.headers['authorization']).toBe('Bearer s3cret-token');
  const { id: targetId } = await world.target(id, 'a b');
  expect(call.headers['x-once']).toBe(`${id}:${targetId}:apply`);
  const [, time, signature] = /^t=(\d+),v1=([\da-f]{64})$/.exec(String(call.headers['x-signature']))!;
  const signed = [time, 'PUT', '/prices/a%20b', call.body].join('.');
  expect(signature).toBe(createHmac('sha256', 's3cret-signing').update(signed).digest('hex'));

  const shown = JSON.stringify([
    await world.read('{ channels { id name kind config health { circuit } } }'),
    await world.ask('testChannel', { channelId }, 'test { ok code message }'),
    await world.events(id),
  ]);
  expect(shown).toContain('********');
  expect(shown).not.toContain('s3cret');
  await server.stop();
});

test('every price of a currency without decimals, or with three, arrives as it was meant', async () => {
  const amounts: [string, number, string][] = [
    ['JPY', 1200, '1200'],
    ['KWD', 1234, '1.234'],
    ['EUR', 5, '0.05'],
  ];
  for (const [currency, unit_amount, decimal] of amounts) {
    const externalId = `in-${currency}`;
    const after = { unit_amount, currency };
    const { id } = await world.apply([], {
      targets: [{ externalId, before: { ...after, unit_amount: unit_amount + 1 }, after }],
    });
    expect(await world.run(id)).toMatchObject({ status: 'APPLIED' });
    expect(await world.price(externalId)).toBe(decimal);
    const report: Answer = await world.do('reconcileRuleRun', { runId: id });
    expect(report).toMatchObject({ totalChecked: 1, mismatches: 0 });
  }
});
