// Webhooks, put together: the deliverer of this process, and the bells that wake it.

import type { BellListener } from '../events/listener.js';
import type { Log } from '../runner/log.js';
import type { RunnerObserver } from '../runner/observer.js';
import { WebhookDelivery } from '../runner/webhook-delivery.js';
import { WebhookSender } from '../runner/webhook-sender.js';
import type { Database } from '../store/db.js';
import type { SecretBox } from '../store/secret-box.js';

export interface WebhookParts {
  readonly db: Database;
  readonly listener: BellListener;
  readonly secrets: SecretBox;
  readonly log: Log;
  readonly observer: RunnerObserver;
}

export function startWebhooks({ listener, ...parts }: WebhookParts): { stop(): Promise<void> } {
  const { db, log } = parts;
  const delivery = new WebhookDelivery({ db, log, sender: new WebhookSender(parts) });
  const forget = [
    listener.onBell((head) => delivery.hear(head)),
    listener.onWebhookChange((tenantId) => delivery.hearEndpoint(tenantId)),
    listener.onReconnect(() => delivery.lookAgain()),
  ];
  delivery.start();
  return {
    stop: async () => {
      for (const each of forget) each();
      await delivery.stop();
    },
  };
}
