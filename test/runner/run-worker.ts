// A runner process for the tests to stop or to kill: works the database given, says when it runs, and stays.
// On SIGTERM it stops in order.
import { Runner } from '../../src/runner/runner.js';
import { Database } from '../../src/store/db.js';
import { makeRuleTargets } from './shop-world.js';
import { KeptLog } from './support.js';

const db = new Database({ url: process.argv[2] ?? '' });
const log = new KeptLog();
const kinds = [makeRuleTargets(db, log)];
const runner = new Runner({ db, kinds, workers: 2, log, timing: { graceMs: 0, heartbeatMs: 20 } });

async function end(): Promise<void> {
  await runner.stop();
  await db.close();
}

process.once('SIGTERM', () => void end());
runner.start();
console.log('running');
