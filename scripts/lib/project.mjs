// What every script shares: where the project is, how to run one of its tools, and how to fingerprint
// files. Uses Node alone, because it runs before node_modules exists.
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = resolve(dirname(fileURLToPath(import.meta.url)), '..', '..');

export const inProject = (...parts) => join(root, ...parts);

/** A failure that its message explains in full: shown without a stack. */
export class StepFailed extends Error {}

/** Runs Node on a script of ours or of an installed package. Resolves to its exit code and output. */
export function runNode(args, { capture = true, env = {} } = {}) {
  return new Promise((done, fail) => {
    const child = spawn(process.execPath, args, {
      cwd: root,
      env: { ...process.env, ...env },
      stdio: capture ? ['ignore', 'pipe', 'pipe'] : ['ignore', 'inherit', 'inherit'],
    });
    const output = [];
    child.stdout?.on('data', (chunk) => output.push(chunk));
    child.stderr?.on('data', (chunk) => output.push(chunk));
    const forward = (signal) => child.kill(signal);
    process.once('SIGTERM', forward);
    child.once('error', fail);
    child.once('close', (code, signal) => {
      process.off('SIGTERM', forward);
      done({ code: code ?? 1, signal, output: Buffer.concat(output).toString() });
    });
  });
}

function* filesUnder(directory) {
  const entries = readdirSync(directory, { withFileTypes: true });
  for (const entry of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    // Stamps are dot files inside what they vouch for: they are no input.
    if (entry.name.startsWith('.')) continue;
    const path = join(directory, entry.name);
    if (entry.isDirectory()) yield* filesUnder(path);
    else yield path;
  }
}

/** Hash over the names and contents of files and directories; content, since a checkout changes times. */
export function fingerprint({ files = [], directories = [], facts = [] }) {
  const hash = createHash('sha256');
  for (const fact of facts) hash.update(`${fact}\0`);
  for (const path of [...files, ...directories.flatMap((each) => [...filesUnder(each)])]) {
    hash
      .update(`${relative(root, path)}\0`)
      .update(readFileSync(path))
      .update('\0');
  }
  return hash.digest('hex');
}

/** Runs a script's body: a StepFailed ends it with its message alone, anything else with its stack. */
export async function main(body) {
  try {
    await body();
  } catch (error) {
    console.error(error instanceof StepFailed ? error.message : error);
    process.exitCode = 1;
  }
}
