// What can be learned about another process from its pid. A pid is given again after a crash or a reboot,
// so a pid alone proves nothing: the moment the process started, or its command, tells it apart.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

function fromProc(pid: number, file: string): string | null {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8');
  } catch {
    return null;
  }
}

function fromPs(pid: number, column: string): string | null {
  try {
    const args = ['-ww', '-p', String(pid), '-o', `${column}=`];
    return execFileSync('ps', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim() || null;
  } catch {
    return null;
  }
}

/** A mark that no other process with this pid will ever have, or null if there is no such process. */
export function startMark(pid: number): string | null {
  if (process.platform !== 'linux') return fromPs(pid, 'lstart');
  const stat = fromProc(pid, 'stat');
  if (stat === null) return null;
  // The command's name stands in brackets and may hold anything; the state is what follows them.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const isDead = fields[0] === 'Z' || fields[0] === 'X';
  return isDead ? null : (fields[19] ?? null);
}

/** The command line of a live process, its arguments joined by blanks, or null. */
export function commandOf(pid: number): string | null {
  if (startMark(pid) === null) return null;
  if (process.platform !== 'linux') return fromPs(pid, 'args');
  return fromProc(pid, 'cmdline')?.replaceAll('\0', ' ').trim() || null;
}
