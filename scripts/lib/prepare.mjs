// Brings a clone from any state to "ready to run": packages installed, Prisma client generated, dist built.
// Each step leaves a stamp inside its own output, so deleting an output repeats its step, and a step
// whose inputs did not change does nothing. A clone that is ready needs no write access and takes no lock.
import { accessSync, constants, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { homedir } from 'node:os';
import { basename, join } from 'node:path';
import { withLock } from './lock.mjs';
import { fingerprint, inProject, root, runNode, StepFailed } from './project.mjs';

const NODE_FLOOR = [20, 19];

function checkNode() {
  const [major, minor] = process.versions.node.split('.').map(Number);
  const [floorMajor, floorMinor] = NODE_FLOOR;
  if (major > floorMajor || (major === floorMajor && minor >= floorMinor)) return;
  throw new StepFailed(
    `Runledger needs Node ${NODE_FLOOR.join('.')} or newer; this is ${process.versions.node} (${process.execPath}).`,
  );
}

const lockfile = inProject('package-lock.json');

/** npm writes this file last, so it stands for a complete installation. */
const installedLockfile = inProject('node_modules', '.package-lock.json');

/** True if somebody ran `npm ci` by hand: every package that is not optional is there as locked. */
function installedByHand() {
  if (!existsSync(installedLockfile)) return false;
  const wanted = JSON.parse(readFileSync(lockfile, 'utf8')).packages;
  const installed = JSON.parse(readFileSync(installedLockfile, 'utf8')).packages;
  return Object.entries(wanted).every(
    ([path, { version, optional, devOptional, peer }]) =>
      path === '' || optional || devOptional || peer || installed[path]?.version === version,
  );
}

/** A home that cannot be written (nobody's, for one) would make npm fail: keep its cache in the project then. */
function cacheOptions() {
  const cache = process.env.npm_config_cache ?? join(homedir(), '.npm');
  try {
    mkdirSync(cache, { recursive: true });
    accessSync(cache, constants.W_OK);
    return [];
  } catch {
    return ['--cache', inProject('.cache', 'npm')];
  }
}

function installPackages() {
  // Dev packages build the project, also where NODE_ENV=production would leave them out.
  const args = ['ci', '--include=dev', '--no-audit', '--no-fund', '--loglevel=error', ...cacheOptions()];
  const cli = process.env.npm_execpath;
  const [command, prefix] = cli && basename(cli) === 'npm-cli.js' ? [process.execPath, [cli]] : ['npm', []];
  const { status, error, stdout, stderr } = spawnSync(command, [...prefix, ...args], {
    cwd: root,
    stdio: ['ignore', 'pipe', 'pipe'],
    encoding: 'utf8',
    maxBuffer: 64 * 1024 * 1024,
  });
  if (error) throw new StepFailed(`npm ci could not be run: ${error.message}`);
  if (status !== 0) throw new StepFailed(`npm ci failed:\n${stdout}${stderr}`);
}

async function runTool(name, args, env) {
  const { code, output } = await runNode(args, { env });
  if (code !== 0) throw new StepFailed(`${name} failed:\n${output.trim()}`);
}

const generateClient = () =>
  runTool('prisma generate', [inProject('node_modules/prisma/build/index.js'), 'generate'], {
    CHECKPOINT_DISABLE: '1',
    PRISMA_HIDE_UPDATE_MESSAGE: '1',
  });

async function compile() {
  // tsc emits only what it thinks has changed: without dist its memory is wrong.
  if (!existsSync(inProject('dist', '.stamp'))) {
    rmSync(inProject('dist'), { recursive: true, force: true });
    rmSync(inProject('.cache', 'build.tsbuildinfo'), { force: true });
  }
  await runTool('tsc', [inProject('node_modules/typescript/bin/tsc'), '-p', 'tsconfig.build.json']);
  mkdirSync(inProject('dist'), { recursive: true });
}

const STEPS = [
  {
    title: 'Installing packages (npm ci)',
    stamp: inProject('node_modules', '.runledger-stamp'),
    inputs: () => ({ files: [lockfile], facts: [process.platform, process.arch] }),
    doneAlready: installedByHand,
    run: installPackages,
  },
  {
    title: 'Generating the Prisma client',
    stamp: inProject('src/store/prisma', '.stamp'),
    inputs: () => ({ files: [lockfile, inProject('prisma/schema.prisma')] }),
    run: generateClient,
  },
  {
    title: 'Building dist',
    stamp: inProject('dist', '.stamp'),
    inputs: () => ({
      files: [lockfile, inProject('tsconfig.json'), inProject('tsconfig.build.json')],
      directories: [inProject('src')],
    }),
    run: compile,
  },
];

/** Only the tests and the type checker need it, so that a start does not wait for it. */
const DOCUMENTS = {
  title: 'Generating typed documents',
  stamp: inProject('test/generated', '.stamp'),
  inputs: () => ({
    files: [lockfile, inProject('codegen.yml'), inProject('schema.graphql')],
    directories: [inProject('test')],
  }),
  run: () =>
    runTool('graphql-codegen', [inProject('node_modules/@graphql-codegen/cli/esm/bin.js'), '--silent']),
};

const isFresh = (step) =>
  existsSync(step.stamp) && readFileSync(step.stamp, 'utf8') === fingerprint(step.inputs());

async function bringUpToDate(step, say) {
  if (isFresh(step)) return;
  if (!step.doneAlready?.()) {
    say(`${step.title} …`);
    await step.run();
  }
  writeFileSync(step.stamp, fingerprint(step.inputs()));
}

function withPrepareLock(say, body) {
  const path = inProject('.cache', 'prepare.lock');
  const onWait = (pid) => say(`Waiting for another start of this clone (pid ${pid}, .cache/prepare.lock) …`);
  return withLock(path, onWait, body);
}

/** Makes the clone ready to run; throws StepFailed with the failing tool's output. */
export async function prepare({ say = console.error } = {}) {
  checkNode();
  if (STEPS.every(isFresh)) return;
  await withPrepareLock(say, async () => {
    for (const step of STEPS) await bringUpToDate(step, say);
  });
}

/** Types the documents in the tests, by the committed schema. */
export async function prepareDocuments({ say = console.error } = {}) {
  if (!isFresh(DOCUMENTS)) await withPrepareLock(say, () => bringUpToDate(DOCUMENTS, say));
}
