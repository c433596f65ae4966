// A database whose channel points at a sandbox over real HTTP, and the kind of work that serves it.
import { openChannel, type ChannelDefaults, type OpenedChannel } from '../../src/connectors/registry.js';
import { DEFAULT_RETRY_POLICY } from '../../src/domain/retry-policy.js';
import type { RuleTargetRow } from '../../src/store/rule-target.js';
import type { RunnerObserver } from '../../src/runner/observer.js';
import type { Log } from '../../src/runner/log.js';
import { ConnectorCache } from '../../src/runner/connector-cache.js';
import { RuleTargets } from '../../src/runner/rule-targets.js';
import type { WorkKind } from '../../src/runner/work.js';
import type { Sandbox } from '../../src/sandbox/server.js';
import { readChannelConfig } from '../../src/store/channel-config.js';
import { registerChannel } from '../../src/store/channel.js';
import type { Database } from '../../src/store/db.js';
import { SecretBox } from '../../src/store/secret-box.js';
import { findRuleRun } from '../../src/store/rule-run-row.js';
import { listRuleTargets } from '../../src/store/rule-target.js';
import { targetsOf, viewerOf } from '../support/fixtures.js';

export const HOUR = 3_600_000;
export const NEVER = new AbortController().signal;

export interface KindOptions {
  readonly leaseMs?: number;
  readonly callTimeoutMs?: number;
  /** 0: a retry is due at once. */
  readonly baseMs?: number;
  /** Without it, a unit ends with its last call, however slow the machine. */
  readonly patienceMs?: number;
  readonly observer?: RunnerObserver;
  /** The keys of the process; none unless given. */
  readonly secrets?: SecretBox;
}

export function makeRuleTargets(db: Database, log: Log, options: KindOptions = {}): RuleTargets {
  const { leaseMs = HOUR, callTimeoutMs = HOUR, baseMs = 0, patienceMs = HOUR, observer, secrets } = options;
  const retry = { ...DEFAULT_RETRY_POLICY, baseMs, throttleBaseMs: baseMs };
  const defaults = { callTimeoutMs, retry, circuit: { toleratedThrottles: 5, openMs: 60_000 } };
  return new RuleTargets({
    db,
    channels: openChannels(db, defaults, secrets),
    leaseMs,
    log,
    patienceMs,
    ...(observer ? { observer } : {}),
  });
}

export function openChannels(
  db: Database,
  defaults: ChannelDefaults,
  secrets = new SecretBox([]),
): ConnectorCache<OpenedChannel> {
  return new ConnectorCache(async (id) => {
    const { kind, config } = await readChannelConfig(db, secrets, id);
    return openChannel(kind, config, defaults);
  });
}

/** Points tenant `default`'s channel at the shop. */
export function pointAt(db: Database, { adminUrl: endpoint, accessToken }: Sandbox): Promise<string> {
  const config = { endpoint, accessToken };
  return registerChannel(db, { tenantId: 'default', name: 'shop', kind: 'shopify', config });
}

/** Targets with these external ids. */
export function named(...externalIds: string[]) {
  return externalIds.map((externalId) => ({ ...targetsOf(1)[0]!, externalId }));
}

export function runOf(db: Database, id: string) {
  return findRuleRun(db, viewerOf('default'), id);
}

export async function targetsIn(db: Database, runId: string): Promise<Map<string, RuleTargetRow>> {
  const request = { first: 1000, after: null, status: null };
  const pages = await listRuleTargets(db, viewerOf('default'), [runId], request);
  return new Map(pages.get(runId)!.nodes.map((target) => [target.externalId, target]));
}

/** Resolves when the shop leaves `count` calls unanswered. */
export async function untilHeld(sandbox: Sandbox, count = 1): Promise<void> {
  while (sandbox.held() < count) await new Promise(setImmediate);
}

/** Works until nothing waits any more. */
export async function drain(kind: WorkKind): Promise<void> {
  for (;;) {
    const ms = await kind.nextDueMs();
    if (ms === null) return;
    if (ms > 0) await new Promise((resolve) => setTimeout(resolve, ms));
    const work = await kind.claim('w');
    await work?.process(NEVER);
  }
}
