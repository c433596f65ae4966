// Alerts to an address of the tenant's, signed. The body is one that Slack's incoming webhooks (and what is
// compatible with them) show as a message; programs read `alert`.

import { z } from 'zod';
import { postSigned } from '../signed-post.js';
import { GUARDED_URL } from '../settings.js';
import { headlineOf, SEND_TIMEOUT_MS, type AlertSink, type Notice } from './sink.js';

export const WEBHOOK_SETTINGS = z.strictObject({
  url: GUARDED_URL,
  /** What the receiver checks the signature with; Slack needs none. */
  secret: z.string().min(16).max(256).exactOptional(),
});

const COLOURS = { WARNING: '#daa038', CRITICAL: '#a30200' } as const;
const ALL_WELL = '#2eb886';

export class WebhookSink implements AlertSink {
  constructor(private readonly settings: z.infer<typeof WEBHOOK_SETTINGS>) {}

  async send(notice: Notice, signal: AbortSignal): Promise<null> {
    const { url, secret } = this.settings;
    const secrets = secret === undefined ? [] : [secret];
    const body = bodyOf(notice);
    await postSigned({ url, secrets, deliveryId: notice.id, body, timeoutMs: SEND_TIMEOUT_MS }, signal);
    return null;
  }
}

function bodyOf(notice: Notice): object {
  const { id: _, takenBy: __, advice, firedAt, ...alert } = notice;
  const color = notice.event === 'FIRED' ? COLOURS[notice.severity] : ALL_WELL;
  return {
    text: headlineOf(notice),
    attachments: [{ color, text: advice, ts: Math.floor(firedAt.getTime() / 1000) }],
    alert: { ...alert, firedAt },
  };
}
