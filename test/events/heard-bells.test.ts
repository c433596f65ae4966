import { expect, test } from 'vitest';
import { HeardBells } from '../../src/events/heard-bells.js';

const head = (id: string, seq: number) => ({ kind: 'OPS', tenantId: 'default', id, seq }) as const;

test('news is what was rung for and not heard', () => {
  const bells = new HeardBells(1_000);
  bells.note(head('a', 5));
  expect(bells.isNews(head('a', 5))).toBe(false);
  expect(bells.isNews(head('a', 6))).toBe(true);
  expect(bells.isNews(head('b', 1))).toBe(true);
});

test('bells that never fall silent are not remembered for ever', () => {
  const bells = new HeardBells(1_000);
  const began = performance.now();
  for (let n = 0; n < 100_000; n += 1) bells.note(head(`run ${n}`, 1), began + n);
  // Those of the last second, at one a millisecond.
  expect(bells.remembered).toBe(1_001);
  expect(bells.isNews(head('run 99000', 1))).toBe(false);
});

test('a run that rings again and again is remembered once, as of its last bell', () => {
  const bells = new HeardBells(1_000);
  const began = performance.now();
  for (let n = 0; n < 5_000; n += 1) bells.note(head('busy', n), began + n);
  expect(bells.remembered).toBe(1);
  bells.catchUp(began + 10_000);
  expect(bells.remembered).toBe(0);
  expect(bells.caughtUpAt).toBe(began + 10_000);
});
