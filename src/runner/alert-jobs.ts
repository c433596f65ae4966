// Alerts by the clock: one job fires and resolves them, the other tells the sinks. Both can be cut short and
// repeated at any point: what is to be told is written down with the alert, and is told until it was taken.

import { setTimeout as delay } from 'node:timers/promises';
import type { AlertSink, Notice } from '../connectors/alert-sink/sink.js';
import { POLICY_RULES } from '../domain/alert.js';
import type { Settings } from '../domain/settings.js';
import { evaluateAlerts, forgetOldAlerts } from '../store/alert.js';
import {
  claimNotices,
  openSinkSettings,
  settleDelivered,
  settleUndelivered,
  type ClaimedNotice,
} from '../store/alert-notice.js';
import type { Database } from '../store/db.js';
import type { SecretBox } from '../store/secret-box.js';
import type { Log } from './log.js';
import type { MaintenanceJob } from './maintenance.js';

export interface AlertEvaluationOptions {
  readonly db: Database;
  readonly log: Log;
  readonly everyMs?: number;
}

export class AlertEvaluation implements MaintenanceJob {
  readonly name = 'alerts';
  readonly everyMs: number;

  constructor(private readonly options: AlertEvaluationOptions) {
    this.everyMs = options.everyMs ?? 10_000;
  }

  async run(): Promise<void> {
    const { db, log } = this.options;
    for (const { event, alert } of await evaluateAlerts(db)) {
      const { id, tenantId, policy, severity, message, value, threshold } = alert;
      const facts = { alert: id, tenant: tenantId, policy, severity, value, threshold };
      // The log is the sink that is always there.
      if (event === 'resolve') log.info(facts, `alert resolved: ${message}`);
      else if (severity === 'CRITICAL') log.error(facts, `alert: ${message}`);
      else log.warn(facts, `alert: ${message}`);
    }
    await forgetOldAlerts(db);
  }
}

export interface AlertDeliveryOptions {
  readonly db: Database;
  readonly secrets: SecretBox;
  readonly openSink: (kind: string, settings: Settings) => AlertSink;
  readonly log: Log;
  readonly everyMs?: number;
}

/** Sinks that are told at once. */
const MAX_AT_ONCE = 20;
/** Between two looks for more, while some sink takes its time. */
const LOOK_AGAIN_MS = 1_000;

export class AlertDelivery implements MaintenanceJob {
  readonly name = 'alert_notices';
  readonly everyMs: number;

  constructor(private readonly options: AlertDeliveryOptions) {
    this.everyMs = options.everyMs ?? 2_000;
  }

  /** Until nothing is due and everything under way has ended. A slow sink does not keep the others waiting. */
  async run(signal: AbortSignal): Promise<void> {
    const underWay = new Set<Promise<void>>();
    for (;;) {
      const room = MAX_AT_ONCE - underWay.size;
      const claimed = room > 0 && !signal.aborted ? await claimNotices(this.options.db, room) : [];
      for (const notice of claimed) {
        const delivery = this.#deliver(notice, signal).finally(() => underWay.delete(delivery));
        underWay.add(delivery);
      }
      if (underWay.size === 0) return;
      const pause = new AbortController();
      await Promise.race([
        ...underWay,
        delay(LOOK_AGAIN_MS, undefined, { signal: pause.signal }).catch(() => {}),
      ]);
      pause.abort();
    }
  }

  async #deliver(claimed: ClaimedNotice, signal: AbortSignal): Promise<void> {
    const { db, secrets, openSink, log } = this.options;
    const { kind, name, id } = claimed.sink;
    try {
      await openSink(kind, openSinkSettings(secrets, claimed)).send(toNotice(claimed), signal);
      await settleDelivered(db, claimed);
    } catch (error) {
      // Cut by a stop: its lease ends, and somebody else tells it.
      if (signal.aborted) return;
      const reason = error instanceof Error ? error.message : String(error);
      const gaveUp = await settleUndelivered(db, claimed, reason);
      const facts = { sink: id, name, kind, tenant: claimed.tenantId, reason, attempts: claimed.attempts };
      if (gaveUp) log.error(facts, 'an alert sink did not take a notice for days: it was given up');
      else log.warn(facts, 'an alert sink did not take a notice; it is tried again');
    }
  }
}

function toNotice({ id, event, tenantId, sink, alert }: ClaimedNotice): Notice {
  if (alert === null) {
    const nothing = { value: 0, threshold: 0, firedAt: new Date(), resolvedAt: null };
    const message = `This is a test of the sink ${sink.name}.`;
    const facts = {
      policy: 'TEST',
      severity: 'WARNING',
      title: 'Test',
      message,
      advice: 'Nothing is wrong.',
    } as const;
    return { id, event, tenantId, alertId: `test-${id}`, ...facts, ...nothing };
  }
  const { id: alertId, ...facts } = alert;
  const { title, advice } = POLICY_RULES[alert.policy];
  return { id, event, tenantId, alertId, title, advice, ...facts };
}
