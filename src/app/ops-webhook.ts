// What a webhook does once it is believed: it queues an ops run in the tenant `default`.

import { publicRunId } from '../domain/run.js';
import type { Viewer } from '../domain/viewer.js';
import type { OpsWebhookOptions } from '../server/ops-webhook.js';
import type { Database } from '../store/db.js';
import { queueOpsRun } from '../store/ops-run.js';

const WEBHOOK: Viewer = { tenantId: 'default', role: 'OPERATOR', actor: 'webhook', keyId: null };

export function opsWebhook(db: Database, secret: string | null): OpsWebhookOptions {
  return {
    secret,
    queue: async (run) => {
      const { id, status } = await queueOpsRun(db, WEBHOOK, { ...run, sameKeyIsSameRun: true });
      return { id: publicRunId('OPS', id), status };
    },
  };
}
