import { expect, test } from 'vitest';
import { planBeganAt } from '../../src/connectors/source-call.js';

const SENT = Date.parse('2026-06-01T10:00:00.900Z');

test.each([
  ['shows the same second, and may be behind within it', '2026-06-01T10:00:00Z', '2026-06-01T10:00:00Z'],
  ['is behind by seconds', '2026-06-01T09:59:57Z', '2026-06-01T09:59:57Z'],
  ['is ahead', '2026-06-01T10:00:05Z', '2026-06-01T10:00:00.900Z'],
  ['shows nothing, and may be behind as well', null, '2026-06-01T10:00:00Z'],
])('when a plan began, by a source’s clock that %s', (_, shown, began) => {
  expect(planBeganAt(SENT, shown === null ? null : Date.parse(shown))).toEqual(new Date(began));
});
