// Which subscriptions are alike.
import { parse } from 'graphql';
import { expect, test } from 'vitest';
import { shapeOf } from '../../src/server/subscription-shape.js';

test('a variable that is not given is another than one that is null', () => {
  const document = parse('subscription ($n: Int = 1) { watch { child(n: $n) } }');
  expect(shapeOf(document, { n: null })).not.toBe(shapeOf(document, {}));
  expect(shapeOf(document, null)).toBe(shapeOf(document, {}));
  expect(shapeOf(document, { n: 1, other: 2 })).toBe(shapeOf(document, { n: 1 }));
});
