// A process that prunes the database given, one row at a time, for the tests to kill.
import { Database } from '../../src/store/db.js';
import { pruneDueRuns } from '../../src/store/prune.js';

const db = new Database({ url: process.argv[2] ?? '' });
await pruneDueRuns(db, { batchSize: 1 });
await db.close();
