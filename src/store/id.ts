// Ids. New rows get a version 7 UUID: it grows with time, so that new rows sit together in every index.

import { randomBytes } from 'node:crypto';

export function newId(): string {
  const bytes = randomBytes(16);
  bytes.writeUIntBE(Date.now(), 0, 6);
  bytes[6] = (bytes[6]! & 0x0f) | 0x70;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  const hex = bytes.toString('hex');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** Ids come from clients: what is no UUID is an id of nothing, and must not reach the database's parser. */
export function isUuid(id: string): boolean {
  return UUID.test(id);
}

const MAX_BIGINT = 9_223_372_036_854_775_807n;

/** Targets are numbered; the same caution applies. */
export function isRowNumber(id: string): boolean {
  return /^[1-9]\d{0,18}$/.test(id) && BigInt(id) <= MAX_BIGINT;
}
