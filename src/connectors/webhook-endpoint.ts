// Endpoints for webhooks: the settings that one takes, and how it is sent something.

import { z } from 'zod';
import type { SettingKinds, Settings } from '../domain/settings.js';
import type { WebhookRefusal } from '../domain/webhook-endpoint.js';
import { AppError } from '../errors.js';
import { postSigned, type RefusedPost } from './signed-post.js';
import { GUARDED_URL, parseSettings } from './settings.js';

const SECRET = z.string().min(16).max(256);

const WEBHOOK_SETTINGS = z.strictObject({
  url: GUARDED_URL.refine((url) => url.length <= 2048, 'must have at most 2048 characters'),
  secret: SECRET,
  /** What signed before; it signs too until then. */
  formerSecret: SECRET.exactOptional(),
  formerSecretUntil: z.iso.datetime().exactOptional(),
});

/** As the API may ask, without knowing any. There is one kind. */
export const WEBHOOK_KINDS: SettingKinds = {
  // Whoever has the address of a chat or an integration can post to it.
  secretNames: () => ['url', 'secret', 'formerSecret'],
  check: (_, config) => void parseSettings('webhook endpoint', WEBHOOK_SETTINGS, config),
};

export interface WebhookPost {
  readonly settings: Settings;
  readonly deliveryId: string;
  readonly body: object;
  readonly timeoutMs: number;
}

/** Answers null when it was taken, and why not when not. An aborted signal ends it. */
export async function postWebhook(post: WebhookPost, signal: AbortSignal): Promise<WebhookRefusal | null> {
  const { settings, ...rest } = post;
  try {
    const { url, secret, formerSecret, formerSecretUntil } = parseSettings(
      'webhook endpoint',
      WEBHOOK_SETTINGS,
      settings,
    );
    const isFormerGood = formerSecretUntil !== undefined && Date.parse(formerSecretUntil) > Date.now();
    const secrets = formerSecret !== undefined && isFormerGood ? [secret, formerSecret] : [secret];
    await postSigned({ url, secrets, ...rest }, signal);
    return null;
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    const { status = null, retryAfterMs = null } = (error.details ?? {}) as Partial<RefusedPost>;
    return { reason: error.message, status, retryAfterMs };
  }
}
