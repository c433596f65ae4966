// What every kind of run shares.

export const RUN_KINDS = ['RULE', 'PIPELINE', 'OPS'] as const;
export type RunKind = (typeof RUN_KINDS)[number];

export const EVENT_LEVELS = ['DEBUG', 'INFO', 'WARN', 'ERROR'] as const;
export type EventLevel = (typeof EVENT_LEVELS)[number];
