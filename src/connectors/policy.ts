// How hard a channel may be driven: retries, rate, circuit, concurrency. Any figure may stand in the
// channel's config under `policy`; what does not is the server's default. No connector sees it: the runner
// keeps it, for every technology alike.

import { z } from 'zod';
import type { RetryPolicy } from '../domain/retry-policy.js';
import { TIMEOUT_MS } from './settings.js';

export interface ChannelPolicy {
  readonly retry: RetryPolicy;
  /** Items that may be sent: `perSecond` in the long run, `burst` at once. Null: as fast as it answers. */
  readonly rateLimit: { readonly perSecond: number; readonly burst: number } | null;
  readonly circuit: {
    /** It opens with the first throttled call after this many in a row. */
    readonly toleratedThrottles: number;
    readonly openMs: number;
  };
  /** Batches under way at once, over all server processes. Null: as many as there are workers. */
  readonly concurrency: number | null;
}

/** What a config may set, each figure on its own. */
export const POLICY_SETTINGS = z.strictObject({
  retry: z
    .strictObject({
      maxAttempts: z.int().min(1).max(100).exactOptional(),
      baseMs: TIMEOUT_MS.exactOptional(),
      maxMs: TIMEOUT_MS.exactOptional(),
      multiplier: z.number().min(1).max(10).exactOptional(),
      jitter: z.number().min(0).max(1).exactOptional(),
      throttleBaseMs: TIMEOUT_MS.exactOptional(),
    })
    .exactOptional(),
  rateLimit: z
    .strictObject({
      // Slower, and the time until the bucket is full would be none that a clock has.
      perSecond: z.number().min(0.0001).max(1_000_000),
      burst: z.number().min(1).max(1_000_000).exactOptional(),
    })
    .exactOptional(),
  circuit: z
    .strictObject({
      toleratedThrottles: z.int().min(0).max(1_000).exactOptional(),
      openMs: TIMEOUT_MS.exactOptional(),
    })
    .exactOptional(),
  concurrency: z.int().min(1).max(1_000).exactOptional(),
});

export function mergePolicy(
  { retry, rateLimit, circuit, concurrency }: z.infer<typeof POLICY_SETTINGS>,
  defaults: Pick<ChannelPolicy, 'retry' | 'circuit'>,
): ChannelPolicy {
  return {
    retry: { ...defaults.retry, ...retry },
    rateLimit: rateLimit ? { burst: Math.max(1, rateLimit.perSecond), ...rateLimit } : null,
    circuit: { ...defaults.circuit, ...circuit },
    concurrency: concurrency ?? null,
  };
}
