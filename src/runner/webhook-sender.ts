// One delivery from its claim to its settlement: reads the lines, sends them, moves the cursor. Owns what a receiver
// is sent. Called by the delivery, which says when.

import { postWebhook } from '../connectors/webhook-endpoint.js';
import type { RetryPolicy } from '../domain/retry-policy.js';
import { publicRunId } from '../domain/run.js';
import {
  isGone,
  webhookDelayMs,
  webhookDeliveryId,
  WEBHOOK_RETRY,
  type WebhookRefusal,
} from '../domain/webhook-endpoint.js';
import { AppError } from '../errors.js';
import type { Database } from '../store/db.js';
import type { SecretBox } from '../store/secret-box.js';
import {
  openEndpointSettings,
  readBatch,
  type ClaimedEndpoint,
  type ClaimedRun,
  type WebhookBatch,
} from '../store/webhook-cursor.js';
import { settlePing } from '../store/webhook-ping.js';
import {
  noteRefused,
  noteTaken,
  releaseRun,
  settleRefused,
  settleTaken,
  wasSavedSince,
} from '../store/webhook-settle.js';
import { tellingOf, type Log } from './log.js';
import type { RunnerObserver } from './observer.js';

export interface WebhookSenderOptions {
  readonly db: Database;
  readonly secrets: SecretBox;
  readonly log: Log;
  readonly observer?: RunnerObserver;
  readonly timeoutMs?: number;
  readonly retry?: RetryPolicy;
}

/** How long a receiver may take. */
const DEFAULT_TIMEOUT_MS = 10_000;

export class WebhookSender {
  constructor(private readonly options: WebhookSenderOptions) {}

  async send(claimed: ClaimedRun, signal: AbortSignal): Promise<void> {
    const { db } = this.options;
    const batch = await readBatch(db, claimed);
    const { lines, gap, coveredSeq } = batch;
    const [first, last] = [gap?.fromSeq ?? lines[0]?.seq, lines.at(-1)?.seq ?? gap?.toSeq];
    // Nothing of it is wanted: the cursor passes over it.
    if (first === undefined || last === undefined) return settleTaken(db, claimed, coveredSeq);
    const { kind, runId, endpoint } = claimed;
    const deliveryId = webhookDeliveryId(kind, runId, first, last);
    const refusal = await this.#post(endpoint, deliveryId, bodyOf(claimed, deliveryId, batch), signal);
    if (refusal !== null && (signal.aborted || (await wasSavedSince(db, endpoint))))
      return releaseRun(db, claimed);
    if (refusal !== null) return this.#settleRefused(claimed, refusal);
    await settleTaken(db, claimed, coveredSeq);
    await noteTaken(db, endpoint.id);
  }

  async ping(endpoint: ClaimedEndpoint, signal: AbortSignal): Promise<void> {
    const deliveryId = `ping:${endpoint.id}`;
    const body = { id: deliveryId, type: 'ping', sentAt: new Date() };
    const refusal = await this.#post(endpoint, deliveryId, body, signal);
    if (refusal !== null && signal.aborted) return;
    await settlePing(this.options.db, endpoint.id, refusal?.reason ?? null);
  }

  async #post(
    endpoint: ClaimedEndpoint,
    deliveryId: string,
    body: object,
    signal: AbortSignal,
  ): Promise<WebhookRefusal | null> {
    const { secrets, timeoutMs = DEFAULT_TIMEOUT_MS, observer } = this.options;
    const began = performance.now();
    const refusal = await refusalOf(() => {
      const settings = openEndpointSettings(secrets, endpoint);
      return postWebhook({ settings, deliveryId, body, timeoutMs }, signal);
    });
    observer?.onWebhook?.(refusal === null ? 'taken' : 'refused', performance.now() - began);
    return refusal;
  }

  async #settleRefused(claimed: ClaimedRun, refusal: WebhookRefusal): Promise<void> {
    const { db, log, retry = WEBHOOK_RETRY } = this.options;
    const { endpoint } = claimed;
    const { reason } = refusal;
    const delayAfter = (failures: number) => webhookDelayMs(retry, failures, refusal, Math.random);
    await settleRefused(db, claimed, reason, delayAfter(claimed.failures + 1));
    const isOff = await noteRefused(db, {
      id: endpoint.id,
      failures: endpoint.failures,
      reason,
      delayMs: delayAfter(endpoint.failures + 1),
      isGone: isGone(refusal),
    });
    const { id, name, tenantId: tenant } = endpoint;
    const failures = endpoint.failures + 1;
    const facts = { ...tellingOf(claimed), endpoint: id, name, tenant, reason, failures };
    if (isOff) log.error(facts, 'a webhook endpoint was switched off; its place is kept');
    else log.warn(facts, 'a webhook was not taken; it is sent again');
  }
}

/** Settings that cannot be opened are a failure of the endpoint like any other. */
async function refusalOf(post: () => Promise<WebhookRefusal | null>): Promise<WebhookRefusal | null> {
  try {
    return await post();
  } catch (error) {
    if (error instanceof AppError) return { reason: error.message, status: null, retryAfterMs: null };
    throw error;
  }
}

function bodyOf(claimed: ClaimedRun, id: string, { gap, lines }: WebhookBatch): object {
  const { kind, runId, projectId, endpoint } = claimed;
  const publicId = publicRunId(kind, runId);
  return {
    id,
    type: 'run.events',
    tenantId: endpoint.tenantId,
    run: { id: publicId, kind, projectId },
    ...(gap ? { pruned: gap } : {}),
    events: lines.map(({ seq, type, level, message, payload, actor, createdAt }) => ({
      // As the API has it.
      id: `${publicId}:${seq}`,
      seq,
      type,
      level,
      message,
      payload,
      actor,
      createdAt,
    })),
  };
}
