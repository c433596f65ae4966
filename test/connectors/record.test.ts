import { expect, test } from 'vitest';
import { readRecord, setAside } from '../../src/connectors/record.js';

test('a record keeps its id and its JSON', () => {
  expect(readRecord({ id: 'a', n: 1 }, 'a')).toEqual({ externalId: 'a', json: '{"id":"a","n":1}' });
  expect(readRecord({ id: 7 }, 7)).toEqual({ externalId: '7', json: '{"id":7}' });
});

test.each([
  ['null', null, 'a', 'no object'],
  ['a list', [], 'a', 'no object'],
  ['a text', 'x', 'a', 'no object'],
  ['no id', {}, undefined, 'no usable id'],
  ['an empty id', {}, ' ', 'no usable id'],
  ['a fraction for an id', {}, 1.5, 'no usable id'],
  ['an id that no index holds', {}, 'x'.repeat(256), 'no usable id'],
  ['a line break in the id', {}, 'a\nb', 'no usable id'],
  ['a NUL', { a: 'x\0y' }, 'a', 'cannot be stored'],
  ['a NUL in a name', { 'x\0': 1 }, 'a', 'cannot be stored'],
  ['a lone surrogate', { a: '\ud800' }, 'a', 'cannot be stored'],
  ['too much of it', { a: 'x'.repeat(300_000) }, 'a', 'characters'],
  ['too deep', nest(100), 'a', 'nested'],
  ['so deep that it cannot be written', nest(10_000), 'a', 'nested'],
  ['a list that is so deep', [nest(10_000)], 'a', 'nested'],
])('%s is set aside', (_, payload, id, reason) => {
  const record = readRecord(payload, id);
  expect((record as { reason: string }).reason).toContain(reason);
  expect(record.json.length).toBeLessThan(5_000);
});

test('what is set aside keeps its id where it has one', () => {
  expect(readRecord({ a: 'x\0y' }, 'a').externalId).toBe('a');
  expect(readRecord({ a: 'x'.repeat(300_000) }, 7).externalId).toBe('7');
  expect(readRecord({ a: 1 }, 'a\ud800').externalId).toBeNull();
  expect(readRecord([], 'a').externalId).toBeNull();
});

test('what is nested too deep keeps its id, and the first of its levels', () => {
  const { externalId, json } = readRecord(
    { id: 'a', title: 'x', parts: nest(10_000), '': nest(10_000) },
    'a',
  );
  expect(externalId).toBe('a');
  expect(JSON.parse(json)).toEqual({ text: '{"id":"a","title":"x","parts":"…","":"…"}' });
});

test('what only looks like an escape is kept', () => {
  expect(readRecord({ a: '\\u0000', b: '\\\\ud800', c: '😀' }, 'a')).not.toHaveProperty('reason');
});

test('what is set aside can be stored', () => {
  expect(JSON.parse(setAside('a\0b\ud800c', 'because').json)).toEqual({ text: 'a\ufffdb\ufffdc' });
});

function nest(depth: number): object {
  let value = {};
  for (let level = 0; level < depth; level += 1) value = { a: value };
  return value;
}
