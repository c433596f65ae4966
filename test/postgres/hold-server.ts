// A server process for the tests to kill: starts the embedded PostgreSQL of the directory given, says so,
// and stays. On SIGTERM it stops in order.
import { startEmbeddedPostgres } from '../../src/postgres/embedded-postgres.js';

const log = { info: () => {}, warn: () => {} };
const postgres = await startEmbeddedPostgres({ dataDir: process.argv[2] ?? '', log });
process.once('SIGTERM', () => void postgres.stop());
console.log(postgres.url);
