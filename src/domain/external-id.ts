// The id that an item has outside: in a channel, in a supplier's feed. Ours to keep, never to interpret.

import { isStorable } from './text.js';

export const MAX_EXTERNAL_ID_LENGTH = 255;

/** What is wrong with one of several ids, of which `seen` came before it; null when nothing is. */
export function findExternalIdFault(externalId: string, seen: ReadonlySet<string>): string | null {
  if (externalId.trim() === '') return 'must not be empty';
  if (externalId.length > MAX_EXTERNAL_ID_LENGTH)
    return `is longer than ${MAX_EXTERNAL_ID_LENGTH} characters`;
  if (!isStorable(externalId)) return 'contains a character that cannot be stored';
  return seen.has(externalId) ? `${externalId} is given twice` : null;
}
