// Reads a rule's definition as clients write it (docs/guides/pricing-rules.md) into a typed one, or names
// every fault in it with its path. A key it does not know is a fault: a misspelt limit must not pass as none.

import type { Fault, Path } from './fault.js';
import {
  ROUNDING_MODES,
  type Adjustment,
  type Grid,
  type Limits,
  type RoundingMode,
  type RuleDefinition,
} from './pricing-rule.js';
import { readCondition } from './pricing-rule-condition.js';
import { isGiven, RuleReader } from './pricing-rule-reader.js';

export type ParsedRule =
  | { readonly rule: RuleDefinition; readonly faults: readonly [] }
  | { readonly rule: null; readonly faults: readonly Fault[] };

export function parseRule(definition: unknown): ParsedRule {
  const reader = new RuleReader();
  const rule = readDefinition(reader, definition);
  if (rule === null || reader.faults.length > 0) return { rule: null, faults: reader.faults };
  return { rule, faults: [] };
}

function readDefinition(reader: RuleReader, definition: unknown): RuleDefinition | null {
  const object = reader.object(definition, [], ['currency', 'match', 'adjust', 'round', 'limits']);
  if (object === null) return null;
  const match = readCondition(reader, object['match'] ?? {}, ['match']);
  const adjust = readAdjustment(reader, object['adjust'], ['adjust']);
  const round = readGrid(reader, object['round'], ['round']);
  const limits = readLimits(reader, object['limits'] ?? {}, ['limits']);
  const currency = reader.currency(object['currency'], ['currency']);
  return match && adjust && round && limits && { currency, match, adjust, round, limits };
}

const ADJUSTMENTS = ['percent', 'amount', 'set', 'marginPercent'] as const;

function readAdjustment(reader: RuleReader, value: unknown, path: Path): Adjustment | null {
  const object = reader.object(value, path, ADJUSTMENTS);
  if (object === null) return null;
  const given = ADJUSTMENTS.filter((key) => isGiven(object[key]));
  const [kind] = given;
  if (kind === undefined || given.length > 1) {
    return reader.add(path, `must have exactly one of ${ADJUSTMENTS.join(', ')}`);
  }
  return readOneAdjustment(reader, kind, object[kind], [...path, kind]);
}

function readOneAdjustment(
  reader: RuleReader,
  kind: (typeof ADJUSTMENTS)[number],
  value: unknown,
  path: Path,
): Adjustment | null {
  switch (kind) {
    case 'percent':
    case 'marginPercent': {
      const percent = reader.percent(value, path, -100);
      return percent === null ? null : { kind: kind === 'percent' ? 'percent' : 'margin', percent };
    }
    case 'amount': {
      const amount = reader.signedAmount(value, path);
      return amount === null ? null : { kind, amount };
    }
    case 'set': {
      const amount = reader.amount(value, path);
      return amount === null ? null : { kind, amount };
    }
  }
}

const WHOLE_UNITS: Grid = { mode: 'nearest', step: 1n, ending: 0n };

function readGrid(reader: RuleReader, value: unknown, path: Path): Grid | null {
  if (!isGiven(value)) return WHOLE_UNITS;
  const object = reader.object(value, path, ['mode', 'step', 'ending']);
  if (object === null) return null;
  const mode = object['mode'] ?? 'nearest';
  const modeIsKnown = (ROUNDING_MODES as readonly unknown[]).includes(mode);
  if (!modeIsKnown) reader.add([...path, 'mode'], `must be one of ${ROUNDING_MODES.join(', ')}`);
  const step = reader.amount(object['step'], [...path, 'step']);
  const ending = isGiven(object['ending']) ? reader.amount(object['ending'], [...path, 'ending']) : 0n;
  if (step === null || ending === null || !modeIsKnown) return null;
  if (step === 0n) return reader.add([...path, 'step'], 'must be 1 or more');
  if (ending >= step) return reader.add([...path, 'ending'], `must be less than the step, ${step}`);
  return { mode: mode as RoundingMode, step, ending };
}

function readLimits(reader: RuleReader, value: unknown, path: Path): Limits | null {
  const object = reader.object(value, path, ['floor', 'ceiling', 'minMarginPercent', 'maxChangePercent']);
  if (object === null) return null;
  const optional = <T>(key: string, read: (given: unknown, at: Path) => T | null): T | null =>
    isGiven(object[key]) ? read(object[key], [...path, key]) : null;
  const floor = optional('floor', (given, at) => reader.amount(given, at));
  const ceiling = optional('ceiling', (given, at) => reader.amount(given, at));
  if (floor !== null && ceiling !== null && floor > ceiling) {
    reader.add([...path, 'ceiling'], `must not be less than the floor, ${floor}`);
  }
  return {
    floor,
    ceiling,
    minMargin: optional('minMarginPercent', (given, at) => reader.percent(given, at, -100)),
    maxChange: optional('maxChangePercent', (given, at) => reader.percent(given, at, 0)),
  };
}
