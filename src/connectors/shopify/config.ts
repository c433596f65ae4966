// What a Shopify channel needs to be told.

import { z } from 'zod';
import { GUARDED_URL, TIMEOUT_MS } from '../settings.js';

export interface ShopifyConfig {
  /** The full address of the shop's graphql.json. */
  readonly endpoint: string;
  readonly accessToken: string;
  /** How long one call may stay without an answer. */
  readonly callTimeoutMs: number;
}

const ADMIN_PATH = /^\/admin\/api\/[^/]+\/graphql\.json$/;

export const SHOPIFY_SETTINGS: z.ZodType<ShopifyConfig> = z
  .strictObject({
    endpoint: GUARDED_URL.refine(isAdminEndpoint, 'must end in /admin/api/<version>/graphql.json'),
    accessToken: z.string().regex(/^[\x21-\x7e]+$/, 'must be printable ASCII without spaces'),
    callTimeoutMs: TIMEOUT_MS,
  })
  .readonly();

function isAdminEndpoint(endpoint: string): boolean {
  return ADMIN_PATH.test(new URL(endpoint).pathname);
}
