// How much garbage the process may gather. Called once, by main, before there is any.

import { setFlagsFromString } from 'node:v8';

/**
 * The old part of the heap is collected when it has grown by this much since the last time. Left to itself, V8 lets it
 * come to four times what lives: what is in hand while it waits for the network or the database outlives the young
 * part, and a feed that is read without a pause makes much of that. A limit on the whole heap would end a process that
 * has a large answer to give; this one only collects sooner. See docs/adr/0024.
 */
const GROWTH_PERCENT = 100;

export function boundHeapGrowth(): void {
  setFlagsFromString(`--heap-growing-percent=${GROWTH_PERCENT}`);
}
