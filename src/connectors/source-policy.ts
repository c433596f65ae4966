// How a source may be read: pages, partitions, retries. Any figure may stand in the source's config under
// `policy`; what does not is the default. Retries are the runner's; the plan is the connector's.

import { z } from 'zod';
import { MAX_DELIVERIES } from '../domain/partition.js';
import type { RetryPolicy } from '../domain/retry-policy.js';
import { POLICY_SETTINGS } from './policy.js';

export interface PlanPolicy {
  /** Records a page. */
  readonly pageSize: number;
  /** The most partitions a run is cut into. */
  readonly partitions: number;
}

export interface SourcePolicy extends PlanPolicy {
  readonly retry: RetryPolicy;
}

export const SOURCE_POLICY_SETTINGS = z.strictObject({
  pageSize: z.int().min(1).max(1_000).exactOptional(),
  partitions: z.int().min(1).max(1_000).exactOptional(),
  retry: POLICY_SETTINGS.shape.retry,
});

export function mergeSourcePolicy(
  { pageSize = 30, partitions = 30, retry }: z.infer<typeof SOURCE_POLICY_SETTINGS>,
  defaults: Pick<SourcePolicy, 'retry'>,
): SourcePolicy {
  return { pageSize, partitions, retry: { ...defaults.retry, maxAttempts: MAX_DELIVERIES, ...retry } };
}
