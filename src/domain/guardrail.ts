// Guardrails: how much a run may change before somebody has to say that they mean it. A tenant has its own;
// the defaults let any ordinary run pass, and stop a price that was taken for another unit (100 times as much).

export interface Guardrails {
  readonly maxTargets: number;
  /** Of any one target, up or down. */
  readonly maxChangePercent: number;
}

export type GuardrailName = 'MAX_TARGETS' | 'MAX_CHANGE';

export interface Exceeded {
  readonly guardrail: GuardrailName;
  readonly limit: number;
  /** Null where no figure says it: a price that rises from zero changes by more than any percentage. */
  readonly actual: number | null;
}

export interface RunSize {
  readonly count: number;
  readonly minChangePercent: number | null;
  readonly maxChangePercent: number | null;
  /** How many targets change by more than is allowed, counted exactly. */
  readonly overChange: number;
  /** How many rise from zero. */
  readonly fromZero: number;
}

export function findExceeded({ maxTargets, maxChangePercent }: Guardrails, run: RunSize): Exceeded[] {
  const exceeded: Exceeded[] = [];
  if (run.count > maxTargets) {
    exceeded.push({ guardrail: 'MAX_TARGETS', limit: maxTargets, actual: run.count });
  }
  if (run.overChange + run.fromZero > 0) {
    const largest = Math.max(Math.abs(run.minChangePercent ?? 0), Math.abs(run.maxChangePercent ?? 0));
    const actual = run.fromZero > 0 ? null : largest;
    exceeded.push({ guardrail: 'MAX_CHANGE', limit: maxChangePercent, actual });
  }
  return exceeded;
}

const WORDS: Readonly<Record<GuardrailName, (exceeded: Exceeded) => string>> = {
  MAX_TARGETS: ({ limit, actual }) => `${actual} targets are more than ${limit}`,
  MAX_CHANGE: ({ limit, actual }) =>
    actual === null
      ? `a price rises from zero, by more than ${limit} % or any other`
      : `a price changes by ${actual} %, more than ${limit} %`,
};

export function describeExceeded(exceeded: readonly Exceeded[]): string {
  return exceeded.map((each) => WORDS[each.guardrail](each)).join('; ');
}
