// The port to whoever is told of alerts. One file beside this one per technology.

import type { AlertEvent, AlertSeverity } from '../../domain/alert.js';

/** One thing to tell. */
export interface Notice {
  /** The same for every try. */
  readonly id: string;
  readonly event: AlertEvent;
  /** The alert's id: what fires and what resolves are told under one name. */
  readonly alertId: string;
  readonly tenantId: string;
  readonly policy: string;
  readonly severity: AlertSeverity;
  readonly title: string;
  readonly message: string;
  readonly advice: string;
  readonly value: number;
  readonly threshold: number;
  readonly firedAt: Date;
  readonly resolvedAt: Date | null;
}

export interface AlertSink {
  /** Resolves when it was taken; rejects with the reason when not. It never outlasts its timeout by much. */
  send(notice: Notice, signal: AbortSignal): Promise<void>;
}

/** How long a sink may take. */
export const SEND_TIMEOUT_MS = 10_000;

/** "[FIRED] Low success rate: …", as a subject line or a chat message. */
export function headlineOf({ event, severity, title, message }: Notice): string {
  const state = event === 'FIRED' ? severity : event;
  return `[${state}] ${title}: ${message}`;
}
