// What the http connector's tests share: settings for the single and the batch form, pointed at a server
// whose every answer the test writes itself.

import { HTTP_SETTINGS, type HttpConfig } from '../../../src/connectors/http/config.js';
import { HttpChannel } from '../../../src/connectors/http/http-channel.js';
import { parseSettings } from '../../../src/connectors/settings.js';
import type { z } from 'zod';
import type { Call } from '../support.js';

export type Settings = z.input<typeof HTTP_SETTINGS>;

/** One call per item. */
export function singleForm(origin: string): Settings {
  return {
    write: {
      url: `${origin}/prices/{{externalId}}`,
      method: 'PUT',
      headers: { Authorization: 'Bearer {{credentials.token}}' },
      body: { price: '{{decimal}}', minor: '{{unitAmount}}', currency: '{{currency}}' },
    },
    read: {
      url: `${origin}/prices/{{externalId}}`,
      answer: { amount: '/price', unit: 'decimal' },
    },
    credentials: { token: 's3cret-token' },
    callTimeoutMs: 15_000,
  };
}

/** Ten items in one call, each with an answer of its own. */
export function batchForm(origin: string): Settings {
  return {
    write: {
      url: `${origin}/prices`,
      body: { updates: '{{items}}', key: '{{idempotencyKey}}' },
      batch: { max: 10, item: { sku: '{{externalId}}', amount: '{{unitAmount}}' } },
      answer: {
        items: '/results',
        id: '/sku',
        ok: { at: '/status', is: ['ok'] },
        error: '/reason',
        retryAfter: '/retryAfter',
      },
    },
    read: {
      url: `${origin}/prices/search`,
      method: 'POST',
      body: { skus: '{{externalIds}}' },
      max: 10,
      answer: { items: '/prices', id: '/sku', amount: '/amount', unit: 'minor' },
    },
    callTimeoutMs: 15_000,
  };
}

export function parseHttp(settings: unknown): HttpConfig {
  return parseSettings('http channel', HTTP_SETTINGS, settings);
}

export function connectTo(settings: Settings): HttpChannel {
  return new HttpChannel(parseHttp(settings));
}

/** The ids that a call in the batch form carries. */
export function idsIn(call: Call): string[] {
  const { updates, skus } = JSON.parse(call.body) as { updates?: { sku: string }[]; skus?: string[] };
  return skus ?? updates!.map(({ sku }) => sku);
}
