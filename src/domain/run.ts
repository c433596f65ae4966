// What every kind of run shares.

export const RUN_KINDS = ['RULE', 'PIPELINE', 'OPS'] as const;
export type RunKind = (typeof RUN_KINDS)[number];

export type EventLevel = 'DEBUG' | 'INFO' | 'WARN' | 'ERROR';

const OPS_PREFIX = 'run-';

/** A run's id as people and programs see it: an ops run's begins with `run-`. */
export function publicRunId(kind: RunKind, id: string): string {
  return kind === 'OPS' ? `${OPS_PREFIX}${id}` : id;
}

/** The key of a run's row, from the id that people see. */
export function storedRunId(publicId: string): string {
  return publicId.startsWith(OPS_PREFIX) ? publicId.slice(OPS_PREFIX.length) : publicId;
}
