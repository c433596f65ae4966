// Waiting: for a moment, and for a server that is away. Both end at once when they are told to.

import { setTimeout as sleep } from 'node:timers/promises';
import { ApiFault } from './api.js';

const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 10_000;

/** False when it was cut short. */
export async function pause(ms: number, signal: AbortSignal): Promise<boolean> {
  try {
    await sleep(ms, undefined, { signal });
    return true;
  } catch {
    return false;
  }
}

/** Tries until it succeeds or fails for good; a fault that passes is told once and waited out. */
export async function persist<T>(
  work: () => Promise<T>,
  signal: AbortSignal,
  onWait: (fault: ApiFault) => void,
): Promise<T> {
  for (let wait = FIRST_WAIT_MS, told = false; ; wait = Math.min(wait * 2, LONGEST_WAIT_MS)) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof ApiFault) || !error.isPassing || signal.aborted) throw error;
      if (!told) onWait(error);
      told = true;
      // Spread, so that many workers do not come back at the same moment.
      if (!(await pause(wait * (0.5 + Math.random()), signal))) throw error;
    }
  }
}
