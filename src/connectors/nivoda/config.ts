// What a nivoda source needs to be told.

import { z } from 'zod';
import { GUARDED_URL, TIMEOUT_MS } from '../settings.js';

export const NIVODA_SETTINGS = z.strictObject({
  /** The full address of the supplier's GraphQL. */
  endpoint: GUARDED_URL,
  username: z.string().min(1),
  password: z.string().min(1),
  /** How long one call may stay without an answer. */
  callTimeoutMs: TIMEOUT_MS,
});

export type NivodaSettings = z.infer<typeof NIVODA_SETTINGS>;
