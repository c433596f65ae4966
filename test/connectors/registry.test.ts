import { describe, expect, test } from 'vitest';
import { CHANNEL_KINDS, openChannel, type ChannelDefaults } from '../../src/connectors/registry.js';
import { ShopifyChannel } from '../../src/connectors/shopify/shopify-channel.js';
import { DEFAULT_RETRY_POLICY } from '../../src/domain/retry-policy.js';

const defaults: ChannelDefaults = {
  callTimeoutMs: 60_000,
  retry: DEFAULT_RETRY_POLICY,
  circuit: { toleratedThrottles: 5, openMs: 60_000 },
};
const sound = { endpoint: 'https://shop.example/admin/api/2026-10/graphql.json', accessToken: 'shpat_1' };

function faultsOf(kind: string, config: unknown): string[] {
  try {
    openChannel(kind, config, defaults);
  } catch (error) {
    expect(error).toMatchObject({ code: 'INVALID_INPUT' });
    const { details } = error as { details: { faults: { field: string[] }[] } };
    return details.faults.map(({ field }) => field.join('.'));
  }
  return [];
}

describe('openChannel', () => {
  test('opens a kind by its name, with the default timeout', () => {
    expect(openChannel('shopify', sound, defaults).channel).toBeInstanceOf(ShopifyChannel);
    expect(openChannel('shopify', { ...sound, callTimeoutMs: 5 }, defaults).channel.maxBatch).toBe(500);
  });

  test('a policy that is not given is the default', () => {
    expect(openChannel('shopify', sound, defaults).policy).toEqual({
      retry: DEFAULT_RETRY_POLICY,
      circuit: defaults.circuit,
      rateLimit: null,
      concurrency: null,
    });
  });

  test('each figure of the policy may be set alone', () => {
    const policy = {
      retry: { maxAttempts: 7 },
      circuit: { openMs: 1 },
      rateLimit: { perSecond: 2.5 },
      concurrency: 3,
    };
    expect(openChannel('shopify', { ...sound, policy }, defaults).policy).toEqual({
      retry: { ...DEFAULT_RETRY_POLICY, maxAttempts: 7 },
      circuit: { toleratedThrottles: 5, openMs: 1 },
      rateLimit: { perSecond: 2.5, burst: 2.5 },
      concurrency: 3,
    });
    const slow = { ...sound, policy: { rateLimit: { perSecond: 0.1 } } };
    expect(openChannel('shopify', slow, defaults).policy.rateLimit).toEqual({ perSecond: 0.1, burst: 1 });
  });

  test('a rate so low that no clock tells when the bucket is full is refused', () => {
    const slower = { ...sound, policy: { rateLimit: { perSecond: 1e-300, burst: 1_000_000 } } };
    expect(() => openChannel('shopify', slower, defaults)).toThrow(/perSecond/);
  });

  test('names every fault of settings and policy at once, never the credential', () => {
    const wrong = { endpoint: 'shop', accessToken: 'two words', policy: { retry: { jitter: 2 }, speed: 1 } };
    expect(faultsOf('shopify', wrong)).toEqual(['endpoint', 'accessToken', 'policy.retry.jitter', 'policy']);
    expect(() => openChannel('shopify', wrong, defaults)).not.toThrow(/two words/);
  });

  test.each([null, 'text', []])('refuses the config %j', (config) => {
    expect(faultsOf('shopify', config)).toEqual(['']);
  });

  test.each(['amazon', 'toString', ''])('refuses the kind %j and says which there are', (kind) => {
    expect(faultsOf(kind, {})).toEqual(['kind']);
    expect(() => openChannel(kind, {}, defaults)).toThrow(CHANNEL_KINDS.join(', '));
  });
});
