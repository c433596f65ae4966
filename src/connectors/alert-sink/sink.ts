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
  /** Whoever of a sink's several addresses has it by an earlier try. */
  readonly takenBy: readonly string[];
}

export interface AlertSink {
  /**
   * Resolves when it was taken, with what is to be known all the same; rejects with the reason when not. It never
   * outlasts its timeouts by much.
   */
  send(notice: Notice, signal: AbortSignal): Promise<string | null>;
}

/** Not taken, or not by everybody yet. */
export class NotTaken extends Error {
  constructor(
    message: string,
    readonly facts: {
      /** The sink has said that it will never take it. */
      readonly isFinal: boolean;
      /** The addresses that have taken it now. */
      readonly takenBy: readonly string[];
    },
  ) {
    super(message);
    this.name = 'NotTaken';
  }
}

/** How long a sink may take. */
export const SEND_TIMEOUT_MS = 10_000;

/** Not yet, rather than never: a password that was changed, an address that is being deployed. */
const PATIENT_STATUSES: ReadonlySet<number> = new Set([401, 403, 404, 408, 425, 429]);

/** Whether a sink has said that it will never take it. */
export function isRefusedForGood(error: unknown): boolean {
  if (error instanceof NotTaken) return error.facts.isFinal;
  const { status = 0 } = answerIn(error);
  return status >= 400 && status < 500 && !PATIENT_STATUSES.has(status);
}

/** How much patience a sink has asked for, when it has. */
export function retryAfterOf(error: unknown): number | null {
  return answerIn(error).retryAfterMs ?? null;
}

function answerIn(error: unknown): Partial<RefusedPost> {
  return error instanceof AppError ? (error.details ?? {}) : {};
}

/** "[FIRED] Low success rate: …", as a subject line or a chat message. */
export function headlineOf({ event, severity, title, message }: Notice): string {
  const state = event === 'FIRED' ? severity : event;
  return `[${state}] ${title}: ${message}`;
}
