// One preparation at a time per clone: a file that holds the pid of whoever is at it.
import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === 'EPERM';
  }
}

function tryToTake(path) {
  try {
    writeFileSync(path, String(process.pid), { flag: 'wx' });
    return true;
  } catch (error) {
    if (error.code === 'EEXIST') return false;
    throw error;
  }
}

/** The live pid that holds the lock, or null if it is free or was left behind by a dead process. */
function holderOf(path) {
  try {
    const pid = Number(readFileSync(path, 'utf8'));
    // A container gives the same pid again after a crash: our own pid in the file is never another process.
    if (pid > 0) return pid !== process.pid && isAlive(pid) ? pid : null;
    // Still empty: its owner is between creating and writing it, unless that was a while ago.
    return Date.now() - statSync(path).mtimeMs < 5_000 ? 'unknown' : null;
  } catch (error) {
    if (error.code === 'ENOENT') return null;
    throw error;
  }
}

/** Runs `body` while holding the lock; `onWait(pid)` is called once if somebody else holds it. */
export async function withLock(path, onWait, body) {
  mkdirSync(dirname(path), { recursive: true });
  let waited = false;
  while (!tryToTake(path)) {
    const holder = holderOf(path);
    if (holder === null) {
      rmSync(path, { force: true });
      continue;
    }
    if (!waited) onWait(holder);
    waited = true;
    await sleep(200);
  }
  try {
    return await body();
  } finally {
    rmSync(path, { force: true });
  }
}
