// What a pricing rule would do to a catalog. Owns the tally of an evaluation: it is fed item by item, keeps
// counts only, and gives back the targets, so that a catalog of any size is previewed in the same memory.

import { evaluateRule, type RuleDefinition, type RuleLimit, type SkipReason } from './pricing-rule.js';
import type { RuledItem } from './pricing-rule-match.js';
import type { NewTarget } from './rule-target.js';

/** Counts by name; what did not occur is not in it. */
export type Counts<Name extends string> = Partial<Record<Name, number>>;

/** What the targets themselves do not tell. */
export interface EvaluationCounts {
  /** Items that the rule was held against. */
  readonly evaluated: number;
  readonly matched: number;
  /** Matched, and their price is right already. */
  readonly unchanged: number;
  readonly skipped: Counts<SkipReason>;
  /** How often each limit held a price. */
  readonly limitHits: Counts<RuleLimit>;
}

/** What a run's targets come to. A change from nothing has no percentage, and is left out of those. */
export interface TargetSummary {
  readonly count: number;
  readonly minChangePercent: number | null;
  readonly medianChangePercent: number | null;
  readonly maxChangePercent: number | null;
  readonly largestIncreases: readonly PriceChange[];
  readonly largestDecreases: readonly PriceChange[];
  /** Stands for exactly these targets; see docs/guides/pricing-rules.md for what it covers. */
  readonly hash: string;
}

export interface PriceChange {
  readonly externalId: string;
  readonly beforeAmount: number;
  readonly afterAmount: number;
  readonly changePercent: number;
}

export class RuleEvaluation {
  readonly #rule: RuleDefinition;
  readonly #currencies = new Map<string, number>();
  readonly #skipped: Counts<SkipReason> = {};
  readonly #limitHits: Counts<RuleLimit> = {};
  #evaluated = 0;
  #matched = 0;
  #unchanged = 0;

  constructor(rule: RuleDefinition) {
    this.#rule = rule;
  }

  /** The target that an item becomes; null when it keeps its price. */
  evaluate(item: RuledItem): NewTarget | null {
    this.#evaluated += 1;
    const verdict = evaluateRule(this.#rule, item);
    if (verdict.kind === 'UNMATCHED') return null;
    this.#matched += 1;
    if (verdict.kind === 'SKIPPED') {
      increase(this.#skipped, verdict.reason);
      return null;
    }
    if (verdict.limit !== null) increase(this.#limitHits, verdict.limit);
    if (verdict.unitAmount === item.unitAmount) {
      this.#unchanged += 1;
      return null;
    }
    this.#currencies.set(item.currency, (this.#currencies.get(item.currency) ?? 0) + 1);
    return {
      externalId: item.externalId,
      beforeAmount: item.unitAmount,
      afterAmount: verdict.unitAmount,
    };
  }

  /** The currencies of the targets so far, and how many targets each has. */
  get currencies(): ReadonlyMap<string, number> {
    return this.#currencies;
  }

  get counts(): EvaluationCounts {
    return {
      evaluated: this.#evaluated,
      matched: this.#matched,
      unchanged: this.#unchanged,
      skipped: this.#skipped,
      limitHits: this.#limitHits,
    };
  }
}

function increase<Name extends string>(counts: Counts<Name>, name: Name): void {
  const found: Partial<Record<string, number>> = counts;
  found[name] = (found[name] ?? 0) + 1;
}
