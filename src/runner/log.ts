// What the runner tells those who operate it; pino fits.

export interface Log {
  info(details: object, message: string): void;
  warn(details: object, message: string): void;
  error(details: object, message: string): void;
}

/** What each line about a run names it by. One without a correlation id of its own has its id for it. */
export function tellingOf({
  runId,
  correlationId = runId,
}: {
  readonly runId: string;
  readonly correlationId?: string;
}): { readonly runId: string; readonly correlationId: string } {
  return { runId, correlationId };
}
