// A catalog item: what a tenant sells, with the price and the cost that pricing rules start from. Owns what a
// valid one is.

import { findExternalIdFault } from './external-id.js';
import { FaultList, type Fault } from './fault.js';
import { isCurrency, isUnitAmount } from './money.js';
import { isStorable } from './text.js';

export const MAX_ITEMS_PER_CALL = 10_000;
const MAX_TITLE_LENGTH = 1_000;

export interface CatalogItemInput {
  readonly externalId: string;
  readonly title: string;
  readonly unitAmount: number;
  readonly costAmount?: number | null;
  readonly currency: string;
  readonly attributes?: unknown;
}

export interface NewCatalogItem {
  readonly externalId: string;
  readonly title: string;
  readonly unitAmount: number;
  readonly costAmount: number | null;
  readonly currency: string;
  readonly attributes: object;
}

export interface CheckedItems {
  /** Complete only when there are no faults. */
  readonly items: readonly NewCatalogItem[];
  readonly faults: readonly Fault[];
}

/** Reads items as clients give them. */
export function checkCatalogItems(inputs: readonly CatalogItemInput[]): CheckedItems {
  const list = new FaultList();
  const seen = new Set<string>();
  const items = inputs.map((input, index) => {
    const idFault = findExternalIdFault(input.externalId, seen);
    if (idFault) list.add([String(index), 'externalId'], idFault);
    seen.add(input.externalId);
    return readItem(input, String(index), list);
  });
  return { items, faults: list.faults };
}

function readItem(input: CatalogItemInput, index: string, list: FaultList): NewCatalogItem {
  const { externalId, title, unitAmount, currency } = input;
  const costAmount = input.costAmount ?? null;
  const attributes = input.attributes ?? {};
  if (title.trim() === '' || title.length > MAX_TITLE_LENGTH || !isStorable(title)) {
    list.add([index, 'title'], `must have 1 to ${MAX_TITLE_LENGTH} characters`);
  }
  const wholeUnits = 'must be a whole number of minor units, zero or more';
  if (!isUnitAmount(unitAmount)) list.add([index, 'unitAmount'], wholeUnits);
  if (costAmount !== null && !isUnitAmount(costAmount)) list.add([index, 'costAmount'], wholeUnits);
  if (!isCurrency(currency)) {
    list.add([index, 'currency'], 'must be an ISO 4217 currency code such as EUR');
  }
  if (typeof attributes !== 'object' || Array.isArray(attributes)) {
    list.add([index, 'attributes'], 'must be a JSON object');
  }
  return { externalId, title, unitAmount, costAmount, currency, attributes };
}
