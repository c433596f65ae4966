// Which of several pricing rules prices an item: the first, by priority, that matches it and gives a price. A
// narrow rule of high priority thus takes precedence over a general one; prices never compound.

import type { RuledItem } from './pricing-rule-match.js';
import { evaluateRule, type RuleDefinition } from './pricing-rule.js';

/** `rules` in the order of their priority. The item's own price when none has one for it. */
export function priceByRules(rules: readonly RuleDefinition[], item: RuledItem): number {
  for (const rule of rules) {
    const verdict = evaluateRule(rule, item);
    if (verdict.kind === 'PRICED') return verdict.unitAmount;
  }
  return item.unitAmount;
}
