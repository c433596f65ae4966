// When it is enough: no call starts any more, and what those under way come to is still told.
import { once } from 'node:events';
import { expect, test } from 'vitest';
import { CallPool, type PooledCall } from '../../src/connectors/call-pool.js';
import { NEVER } from './support.js';

type Run = PooledCall<string>['run'];
const call = (run: Run): PooledCall<string> => ({ size: 1, run });

/** What a pool of two comes to that has had enough when its first results are there. */
async function runUntilEnough(...runs: Run[]): Promise<string[]> {
  const enough = new AbortController();
  const seen: string[] = [];
  for await (const results of new CallPool<string>(2, NEVER, enough.signal).run(runs.map(call))) {
    seen.push(...results);
    enough.abort();
  }
  return seen;
}

const answer =
  (result: string): Run =>
  async () => ({ results: [result], next: [] });

test('those under way end with their results, and the rest is not begun', async () => {
  const slow: Run = async (signal, enough) => {
    await once(enough, 'abort');
    expect(signal.aborted).toBe(false);
    return { results: ['slow'], next: [call(answer('next'))] };
  };
  const last: Run = async (signal, enough) => {
    if (!enough.aborted) await once(enough, 'abort');
    return answer('last')(signal, enough);
  };
  expect(await runUntilEnough(slow, answer('first'), last, answer('never'))).toEqual([
    'first',
    'slow',
    'last',
  ]);
});

test('one that has not been sent by then is no fault, and cuts nobody', async () => {
  const waiting: Run = async (_, enough) => {
    await once(enough, 'abort');
    throw enough.reason;
  };
  const slow: Run = async (signal, enough) => {
    await once(enough, 'abort');
    await new Promise(setImmediate);
    return { results: [signal.aborted ? 'cut' : 'slow'], next: [] };
  };
  // The pool of two: the first result comes of the second call, and the third takes its place.
  expect(await runUntilEnough(waiting, answer('first'), slow)).toEqual(['first', 'slow']);
});
