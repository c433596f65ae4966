// What a newcomer finds in the embedded database: one preview, ready to be queued, in which a few targets
// meet the sandbox's faults. Made once: what people do with it afterwards is theirs.

import type { TargetInput } from '../domain/rule-target.js';
import type { Viewer } from '../domain/viewer.js';
import { listChannels } from '../store/channel.js';
import type { Database } from '../store/db.js';
import { createRuleRun } from '../store/rule-run.js';

const SEEDER: Viewer = { tenantId: 'default', role: 'ADMIN', actor: 'system', keyId: null };
const PLAIN_TARGETS = 20;
const TARGETS_WITH_FAULTS = ['flaky1-mug', 'throttle-lamp', 'fail-poster', 'drift-chair'];

export async function seedDemo(db: Database): Promise<void> {
  const channels = await listChannels(db, SEEDER);
  const sandbox = channels.find(({ name }) => name === 'sandbox');
  if (!sandbox) return;
  await createRuleRun(db, SEEDER, {
    projectId: 'demo',
    channelId: sandbox.id,
    targets: demoTargets(),
    metadata: { title: 'Demo: ten per cent off' },
    correlationId: 'demo',
    // The key makes it once per database.
    idempotencyKey: 'demo',
  });
}

function demoTargets(): TargetInput[] {
  const plain = Array.from({ length: PLAIN_TARGETS }, (_, index) => `demo-${index + 1}`);
  return [...plain, ...TARGETS_WITH_FAULTS].map((externalId, index) => {
    const before = 1_000 + index * 250;
    return { externalId, before: euros(before), after: euros(Math.round(before * 0.9)) };
  });
}

function euros(unitAmount: number): { unit_amount: number; currency: string } {
  return { unit_amount: unitAmount, currency: 'EUR' };
}
