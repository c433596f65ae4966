// A process in which some 30 MB live, and as much again is always in hand: it outlives the young part of the heap and
// is then dropped. Says how many MB the old part came to; bounded when asked.

import { getHeapSpaceStatistics } from 'node:v8';
import { boundHeapGrowth } from '../../src/app/heap.js';

const THINGS = 200;
const MIB = 1024 ** 2;

if (process.argv[2] === 'bounded') boundHeapGrowth();

const makeThing = (): object[] =>
  Array.from({ length: 1_000 }, (_, index) => ({ index, text: { index }, more: [index, index] }));

const living = Array.from({ length: THINGS }, makeThing);
const inHand: object[][] = [];

function peakOf(rounds: number): number {
  let peak = 0;
  for (let round = 0; round < rounds; round += 1) {
    inHand[round % THINGS] = makeThing();
    const old = getHeapSpaceStatistics().find(({ space_name: name }) => name === 'old_space')!;
    peak = Math.max(peak, old.space_used_size / MIB);
  }
  return peak;
}

// The first collections are V8's own affair.
peakOf(10 * THINGS);
console.log(peakOf(20 * THINGS));
if (living.length !== THINGS) throw new Error('it did not live');
