// What outlives the young part of the heap and is dropped is collected before it is a multiple of what lives.
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

const FILE = fileURLToPath(new URL('heap-process.ts', import.meta.url));

async function peakOf(how: 'free' | 'bounded'): Promise<number> {
  const { stdout } = await promisify(execFile)(process.execPath, ['--import', 'tsx', FILE, how]);
  return Number(stdout);
}

test('the heap grows no further than to twice what lives in it', async () => {
  // What V8 does by itself depends on the machine: the one is held against the other.
  const [free, bounded] = [await peakOf('free'), await peakOf('bounded')];
  expect(bounded).toBeLessThan(free * 0.75);
}, 60_000);
