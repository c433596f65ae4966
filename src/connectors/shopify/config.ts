// What a Shopify channel needs to be told. Owns the only way from stored JSON to a config that the
// connector accepts.

import { z } from 'zod';
import { AppError } from '../../errors.js';

export interface ShopifyConfig {
  /** The full address of the shop's graphql.json. */
  readonly endpoint: string;
  readonly accessToken: string;
  /** How long one call may stay without an answer. */
  readonly callTimeoutMs: number;
}

const ADMIN_PATH = /^\/admin\/api\/[^/]+\/graphql\.json$/;
const LOOPBACK_HOSTS: ReadonlySet<string> = new Set(['127.0.0.1', 'localhost', '[::1]']);
const LONGEST_TIMER_MS = 2 ** 31 - 1;

const CONFIG = z.strictObject({
  endpoint: z
    .url({ abort: true })
    .refine(isGuarded, 'must be https: it carries the access token (http only on a loopback host)')
    .refine(isAdminEndpoint, 'must end in /admin/api/<version>/graphql.json'),
  accessToken: z.string().regex(/^[\x21-\x7e]+$/, 'must be printable ASCII without spaces'),
  callTimeoutMs: z.int().positive().max(LONGEST_TIMER_MS),
});

/** Throws INVALID_INPUT that names every fault. */
export function parseShopifyConfig(json: unknown): ShopifyConfig {
  const parsed = CONFIG.safeParse(json);
  if (parsed.success) return Object.freeze(parsed.data);
  const faults = parsed.error.issues.map(({ path, message }) => `${path.join('.') || 'config'}: ${message}`);
  throw new AppError('INVALID_INPUT', `Not a Shopify channel: ${faults.join('; ')}`);
}

function isGuarded(endpoint: string): boolean {
  const { protocol, hostname } = new URL(endpoint);
  return protocol === 'https:' || (protocol === 'http:' && LOOPBACK_HOSTS.has(hostname));
}

function isAdminEndpoint(endpoint: string): boolean {
  return ADMIN_PATH.test(new URL(endpoint).pathname);
}
