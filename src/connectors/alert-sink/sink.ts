// The port to whoever is told of alerts. One file beside this one per technology.

import type { AlertEvent, AlertSeverity } from '../../domain/alert.js';
import { AppError } from '../../errors.js';
import type { RefusedPost } from '../signed-post.js';

/** One thing to tell. */
export interface Notice {
  /** The same for every try, and no other notice's, of whatever installation. */
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

/** Not yet, rather than never. */
const PATIENT_STATUSES: ReadonlySet<number> = new Set([408, 425, 429]);

/** Whether a sink has said that it will never take it: a 4xx of HTTP, a 5xx of SMTP. */
export function isRefusedForGood(error: unknown): boolean {
  if (error instanceof AppError) {
    const { status = 0 } = (error.details ?? {}) as Partial<RefusedPost>;
    return status >= 400 && status < 500 && !PATIENT_STATUSES.has(status);
  }
  const { responseCode = 0 } = error as { readonly responseCode?: number };
  return responseCode >= 500 && responseCode < 600;
}

/** "[FIRED] Low success rate: …", as a subject line or a chat message. */
export function headlineOf({ event, severity, title, message }: Notice): string {
  const state = event === 'FIRED' ? severity : event;
  return `[${state}] ${title}: ${message}`;
}
