// Money: an integer of minor units and an ISO 4217 currency. Exact by construction: no amount is ever a
// fraction, and decimal strings are read and written digit by digit, never through a float.

export interface Money {
  readonly unitAmount: number;
  readonly currency: string;
}

const CURRENCIES: ReadonlySet<string> = new Set(Intl.supportedValuesOf('currency'));

export function isCurrency(code: unknown): code is string {
  return typeof code === 'string' && CURRENCIES.has(code);
}

export function isUnitAmount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

// ISO 4217's own exponents where they are not 2. Not Intl's: it rounds to what is customary in cash, differs
// for HUF or IDR, and would change what stored amounts mean with an upgrade of Node.
const EXPONENTS: ReadonlyMap<string, number> = new Map([
  ...'BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF'
    .split(' ')
    .map((c) => [c, 0] as const),
  ...'BHD IQD JOD KWD LYD OMR TND'.split(' ').map((c) => [c, 3] as const),
  ...'CLF UYW'.split(' ').map((c) => [c, 4] as const),
]);

/** How many decimals the currency has: 2 for EUR, 0 for JPY, 3 for KWD. */
export function currencyExponent(currency: string): number {
  return EXPONENTS.get(currency) ?? 2;
}

/** 1999 EUR → "19.99"; 1999 JPY → "1999". */
export function toDecimal({ unitAmount, currency }: Money): string {
  const exponent = currencyExponent(currency);
  if (exponent === 0) return String(unitAmount);
  const digits = String(unitAmount).padStart(exponent + 1, '0');
  return `${digits.slice(0, -exponent)}.${digits.slice(-exponent)}`;
}

/** "19.99" EUR → 1999; null when it is no amount of that currency. */
export function fromDecimal(text: string, currency: string): number | null {
  const exponent = currencyExponent(currency);
  const match = /^(\d+)(?:\.(\d+))?$/.exec(text);
  if (!match) return null;
  const fraction = match[2] ?? '';
  if (/[1-9]/.test(fraction.slice(exponent))) return null;
  const unitAmount = Number(match[1]! + fraction.slice(0, exponent).padEnd(exponent, '0'));
  return isUnitAmount(unitAmount) ? unitAmount : null;
}
