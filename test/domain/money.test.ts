import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  currencyExponent,
  fromDecimal,
  isCurrency,
  isUnitAmount,
  toDecimal,
} from '../../src/domain/money.js';

const currency = fc.constantFrom(...Intl.supportedValuesOf('currency'));
const unitAmount = fc.maxSafeNat();

describe('decimals', () => {
  test.each([
    [1999, 'EUR', '19.99'],
    [5, 'USD', '0.05'],
    [0, 'EUR', '0.00'],
    [1999, 'JPY', '1999'],
    [1999, 'KWD', '1.999'],
    [Number.MAX_SAFE_INTEGER, 'EUR', '90071992547409.91'],
  ])('%d minor units of %s are %s', (amount, code, decimal) => {
    expect(toDecimal({ unitAmount: amount, currency: code })).toBe(decimal);
    expect(fromDecimal(decimal, code)).toBe(amount);
  });

  test('writing and reading gives the same amount, in every currency', () => {
    fc.assert(
      fc.property(unitAmount, currency, (amount, code) => {
        expect(fromDecimal(toDecimal({ unitAmount: amount, currency: code }), code)).toBe(amount);
      }),
      { numRuns: 1000 },
    );
  });

  test('the decimal has exactly the digits of the amount, and as many decimals as the currency', () => {
    fc.assert(
      fc.property(unitAmount, currency, (amount, code) => {
        const [units = '', fraction = ''] = toDecimal({ unitAmount: amount, currency: code }).split('.');
        expect(fraction).toHaveLength(currencyExponent(code));
        expect(BigInt(units + fraction)).toBe(BigInt(amount));
      }),
    );
  });

  test('zeros at the end change nothing, any other digit past the currency is refused', () => {
    fc.assert(
      fc.property(
        unitAmount,
        currency,
        fc.nat(5),
        fc.integer({ min: 1, max: 9 }),
        (amount, code, zeros, digit) => {
          const decimal = toDecimal({ unitAmount: amount, currency: code });
          const pointed = decimal.includes('.') ? decimal : `${decimal}.`;
          expect(fromDecimal(`${pointed}0${'0'.repeat(zeros)}`, code)).toBe(amount);
          expect(fromDecimal(`${pointed}${'0'.repeat(zeros)}${digit}`, code)).toBeNull();
        },
      ),
    );
  });

  test('what it reads is an amount or null, whatever the text', () => {
    const text = fc.oneof(fc.string(), fc.stringMatching(/^-?\d{0,25}[.,]?\d{0,10}$/));
    fc.assert(
      fc.property(text, currency, (value, code) => {
        const amount = fromDecimal(value, code);
        expect(amount === null || isUnitAmount(amount)).toBe(true);
      }),
    );
  });

  test.each([
    '',
    '.',
    '1.',
    '.5',
    '-1',
    '+1',
    '1e3',
    '1,50',
    ' 1',
    '1\n',
    '0x10',
    'NaN',
    '١',
    '90071992547409.92',
  ])('%j is no amount', (text) => {
    expect(fromDecimal(text, 'EUR')).toBeNull();
  });
});

describe('amounts and currencies', () => {
  test('an amount is a whole number from zero up that a float holds exactly', () => {
    fc.assert(fc.property(unitAmount, (amount) => isUnitAmount(amount)));
    const negative = fc.maxSafeInteger().filter((value) => value < 0);
    const fractional = fc.double().filter((value) => !Number.isSafeInteger(value));
    const wrong = fc.oneof(negative, fractional, fc.string(), fc.bigInt(), fc.constant(null));
    fc.assert(fc.property(wrong, (value) => !isUnitAmount(value)));
  });

  test('a currency is an ISO code in capitals', () => {
    for (const code of ['EUR', 'USD', 'JPY', 'KWD']) expect(isCurrency(code)).toBe(true);
    for (const code of ['eur', 'EURO', '', 'ZZZ', null, 7]) expect(isCurrency(code)).toBe(false);
  });
});
