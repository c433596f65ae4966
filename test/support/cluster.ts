// The PostgreSQL of one test run: a cluster of its own in memory where there is room, as fast as it can be
// and of no worth afterwards. It leaves nothing behind, and clears away what a killed run left. With
// RUNLEDGER_TEST_DATABASE_URL the tests use that server (as superuser) instead.
import { readdirSync, rmSync, statfsSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startEmbeddedPostgres } from '../../src/postgres/embedded-postgres.js';
import { findOrphan, stopProcess } from '../../src/postgres/postmaster.js';

export interface TestCluster {
  /** May create databases. */
  readonly adminUrl: string;
  stop(): Promise<void>;
}

/** A container's /dev/shm is often 64 MB, which a cluster fills at once. */
const ROOM_NEEDED = 2 * 1024 ** 3;

function hasRoom(directory: string): boolean {
  try {
    const { bavail, bsize } = statfsSync(directory);
    return bavail * bsize >= ROOM_NEEDED;
  } catch {
    return false;
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}

function remove(directory: string): void {
  rmSync(directory, { recursive: true, force: true, maxRetries: 5 });
}

/** The name of a run's directory holds its pid: a directory whose run is gone is nobody's. */
async function clearLeftovers(place: string): Promise<void> {
  for (const name of readdirSync(place)) {
    const pid = Number(/^runledger-test-(\d+)-/.exec(name)?.[1]);
    if (!(pid > 0) || isAlive(pid)) continue;
    const directory = join(place, name);
    const orphan = findOrphan(join(directory, 'pgdata'));
    if (orphan !== null) await stopProcess(orphan);
    remove(directory);
  }
}

const silent = { info: () => {}, warn: () => {} };

export async function startTestCluster(externalUrl: string | undefined): Promise<TestCluster> {
  if (externalUrl) return { adminUrl: externalUrl, stop: async () => {} };
  const place = hasRoom('/dev/shm') ? '/dev/shm' : tmpdir();
  await clearLeftovers(place);
  const directory = await mkdtemp(join(place, `runledger-test-${process.pid}-`));
  const onExit = (): void => remove(directory);
  process.once('exit', onExit);
  try {
    const postgres = await startEmbeddedPostgres({ dataDir: directory, log: silent, durable: false });
    const stop = async (): Promise<void> => {
      await postgres.stop();
      remove(directory);
      process.off('exit', onExit);
    };
    return { adminUrl: postgres.url, stop };
  } catch (error) {
    remove(directory);
    throw error;
  }
}
