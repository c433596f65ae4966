// Alerts to PagerDuty by its Events API v2: what fires opens an incident, and what resolves closes it again,
// under the alert's id.

import { z } from 'zod';
import type { AlertEvent } from '../../domain/alert.js';
import { postSigned } from '../signed-post.js';
import { GUARDED_URL } from '../settings.js';
import { headlineOf, SEND_TIMEOUT_MS, type AlertSink, type Notice } from './sink.js';

export const PAGERDUTY_SETTINGS = z.strictObject({
  routingKey: z.string().regex(/^[\w-]{16,64}$/, 'must be the integration’s key'),
  /** For regions and stand-ins. */
  url: GUARDED_URL.default('https://events.pagerduty.com/v2/enqueue'),
});

const SEVERITIES = { WARNING: 'warning', CRITICAL: 'critical' } as const;
const MAX_SUMMARY_LENGTH = 1024;

export class PagerDutySink implements AlertSink {
  constructor(private readonly settings: z.infer<typeof PAGERDUTY_SETTINGS>) {}

  async send(notice: Notice, signal: AbortSignal): Promise<null> {
    await this.#post(notice, notice.event, signal);
    // The incident of a test ends with the test: nothing else would ever end it.
    if (notice.event === 'TEST') await this.#post(notice, 'RESOLVED', signal);
    return null;
  }

  #post(notice: Notice, event: AlertEvent, signal: AbortSignal): Promise<void> {
    const { url, routingKey } = this.settings;
    const body = { routing_key: routingKey, ...eventOf({ ...notice, event }) };
    return postSigned({ url, secrets: [], deliveryId: notice.id, body, timeoutMs: SEND_TIMEOUT_MS }, signal);
  }
}

function eventOf(notice: Notice): object {
  const dedup_key = `runledger-${notice.alertId}`;
  if (notice.event === 'RESOLVED') return { event_action: 'resolve', dedup_key };
  const { tenantId, policy, value, threshold, advice, firedAt } = notice;
  return {
    event_action: 'trigger',
    dedup_key,
    payload: {
      summary: headlineOf(notice).slice(0, MAX_SUMMARY_LENGTH),
      source: `runledger/${tenantId}`,
      // A test must not wake anybody.
      severity: notice.event === 'TEST' ? 'info' : SEVERITIES[notice.severity],
      timestamp: firedAt.toISOString(),
      component: policy,
      custom_details: { value, threshold, advice },
    },
  };
}
