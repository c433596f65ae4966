// Alerts by the clock: one job fires and resolves them, the other tells the sinks. Both can be cut short and
// repeated at any point: what is to be told is written down with the alert, and is told until it was taken.

import { setTimeout as delay } from 'node:timers/promises';
import {
  isRefusedForGood,
  NotTaken,
  retryAfterOf,
  type AlertSink,
  type Notice,
} from '../connectors/alert-sink/sink.js';
import { POLICY_RULES } from '../domain/alert.js';
import type { Settings } from '../domain/settings.js';
import { evaluateAlerts, forgetOldAlerts, type AlertChange } from '../store/alert.js';
import {
  claimNotices,
  releaseNotice,
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
    const { db } = this.options;
    try {
      await evaluateAlerts(db, (change) => this.#tell(change));
    } finally {
      await forgetOldAlerts(db);
    }
  }

  /** The log is the sink that is always there. */
  #tell({ event, alert }: AlertChange): void {
    const { log } = this.options;
    const { id, tenantId, policy, severity, message, value, threshold } = alert;
    const facts = { alert: id, tenant: tenantId, policy, severity, value, threshold };
    if (event === 'resolve') log.info(facts, `alert resolved: ${message}`);
    else if (severity === 'CRITICAL') log.error(facts, `alert: ${message}`);
    else log.warn(facts, `alert: ${message}`);
  }
}

export interface AlertDeliveryOptions {
  readonly db: Database;
  readonly secrets: SecretBox;
  readonly openSink: (kind: string, settings: Settings) => AlertSink;
  readonly log: Log;
  readonly everyMs?: number;
  /** How long what is under way may go on at a stop; then it is cut, and handed back. */
  readonly graceMs?: number;
}

const GRACE_MS = 3_000;
/** Sinks that are told at once. */
const MAX_AT_ONCE = 20;
/** Between two looks for more, while some sink takes its time. */
const LOOK_AGAIN_MS = 1_000;
/** For half of a notice's lease: then it would be claimed again anyway. */
const SETTLE_TRIES = 30;
const SETTLE_AGAIN_MS = 1_000;

export class AlertDelivery implements MaintenanceJob {
  readonly name = 'alert_notices';
  readonly everyMs: number;

  constructor(private readonly options: AlertDeliveryOptions) {
    this.everyMs = options.everyMs ?? 2_000;
  }

  /** Until nothing is due and everything under way has ended. A slow sink does not keep the others waiting. */
  async run(signal: AbortSignal): Promise<void> {
    const { graceMs = GRACE_MS } = this.options;
    const cutting = new AbortController();
    let grace: NodeJS.Timeout | undefined;
    const giveGrace = (): void => void (grace = setTimeout(() => cutting.abort(), graceMs));
    signal.addEventListener('abort', giveGrace, { once: true });
    try {
      await this.#deliverAll(signal, cutting.signal);
    } finally {
      signal.removeEventListener('abort', giveGrace);
      clearTimeout(grace);
    }
  }

  async #deliverAll(stop: AbortSignal, cut: AbortSignal): Promise<void> {
    const underWay = new Set<Promise<void>>();
    for (;;) {
      const room = MAX_AT_ONCE - underWay.size;
      const claimed = room > 0 && !stop.aborted ? await claimNotices(this.options.db, room) : [];
      for (const notice of claimed) {
        const delivery = this.#deliver(notice, cut).finally(() => underWay.delete(delivery));
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
    const facts = { sink: id, name, kind, tenant: claimed.tenantId, attempts: claimed.attempts };
    let flaw: string | null;
    try {
      flaw = await openSink(kind, openSinkSettings(secrets, claimed)).send(toNotice(claimed), signal);
    } catch (error) {
      if (signal.aborted) return releaseNotice(db, claimed);
      return this.#settleFailure(claimed, error, facts);
    }
    if (flaw !== null)
      log.warn({ ...facts, reason: flaw }, 'an alert sink took a notice, but not all of it did');
    await this.#settleTaken(claimed, flaw, signal);
  }

  /** It was told: a database that is away for a moment must not have it told again. */
  async #settleTaken(claimed: ClaimedNotice, flaw: string | null, signal: AbortSignal): Promise<void> {
    for (let tries = 1; ; tries += 1) {
      try {
        return await settleDelivered(this.options.db, claimed, flaw);
      } catch (error) {
        if (tries === SETTLE_TRIES || signal.aborted) throw error;
        await delay(SETTLE_AGAIN_MS, undefined, { signal }).catch(() => {});
      }
    }
  }

  async #settleFailure(claimed: ClaimedNotice, error: unknown, about: object): Promise<void> {
    const { db, log } = this.options;
    const reason = error instanceof Error ? error.message : String(error);
    const isFinal = isRefusedForGood(error);
    const takenBy = error instanceof NotTaken ? error.facts.takenBy : [];
    const retryAfterMs = retryAfterOf(error);
    const gaveUp = await settleUndelivered(db, claimed, { reason, isFinal, retryAfterMs, takenBy });
    const facts = { ...about, reason };
    if (gaveUp && isFinal) log.error(facts, 'an alert sink refuses a notice: it was given up');
    else if (gaveUp) log.error(facts, 'an alert sink did not take a notice for days: it was given up');
    else log.warn(facts, 'an alert sink did not take a notice; it is tried again');
  }
}

function toNotice({ id: number, event, tenantId, takenBy, sink, alert }: ClaimedNotice): Notice {
  // Every installation counts its notices from 1, and mailboxes drop what seems to have come before.
  const id = `${sink.id}-${number}`;
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
    return { id, event, tenantId, takenBy, alertId: `test-${id}`, ...facts, ...nothing };
  }
  const { id: alertId, ...facts } = alert;
  const { title, advice } = POLICY_RULES[alert.policy];
  return { id, event, tenantId, takenBy, alertId, title, advice, ...facts };
}
