// Reads the small pieces that a rule's definition is made of: objects of known keys, amounts, percentages.
// One reader goes through one definition, collects its faults, and remembers whether it names an amount,
// since an amount means nothing without a currency.

import { FaultList, type Path } from './fault.js';
import { isObject } from './json.js';
import { isCurrency, isUnitAmount } from './money.js';
import type { Percent } from './pricing-rule.js';

const MAX_PERCENT = 1_000_000;

export class RuleReader extends FaultList {
  #firstAmount: Path | null = null;

  object(value: unknown, path: Path, keys: readonly string[]): Record<string, unknown> | null {
    if (!isObject(value)) return this.add(path, `must be an object of ${keys.join(', ')}`);
    for (const key of Object.keys(value)) {
      if (!keys.includes(key)) this.add([...path, key], `is not known here; there are ${keys.join(', ')}`);
    }
    return value;
  }

  amount(value: unknown, path: Path): bigint | null {
    this.#firstAmount ??= path;
    if (isUnitAmount(value)) return BigInt(value);
    return this.add(path, 'must be a whole number of minor units, zero or more');
  }

  signedAmount(value: unknown, path: Path): bigint | null {
    this.#firstAmount ??= path;
    if (Number.isSafeInteger(value)) return BigInt(value as number);
    return this.add(path, 'must be a whole number of minor units');
  }

  /** A number's shortest decimal is what the client wrote: no arithmetic touches it before it is whole. */
  percent(value: unknown, path: Path, least: number): Percent | null {
    const decimal = typeof value === 'number' ? /^(-?)(\d+)(?:\.(\d{1,4}))?$/.exec(String(value)) : null;
    if (decimal === null || (value as number) < least || (value as number) > MAX_PERCENT) {
      return this.add(path, `must be a number from ${least} to ${MAX_PERCENT} with up to four decimals`);
    }
    const [, sign = '', whole = '', fraction = ''] = decimal;
    return BigInt(`${sign}${whole}${fraction.padEnd(4, '0')}`);
  }

  /** Read last: it must be there when anything before it was an amount. */
  currency(value: unknown, path: Path): string | null {
    if (isGiven(value)) {
      return isCurrency(value) ? value : this.add(path, 'must be an ISO 4217 currency code such as EUR');
    }
    if (this.#firstAmount === null) return null;
    return this.add(path, `is needed, because ${this.#firstAmount.join('.')} is an amount`);
  }
}

export function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}
