// The server process: the only reader of its environment and signals. Starts the app, says where it is, and
// stops it in order on SIGINT or SIGTERM; a second signal ends the process at once.

import { inspect } from 'node:util';
import { pino, type Logger } from 'pino';
import { App } from './app.js';
import { boundHeapGrowth } from './app/heap.js';
import { createLog } from './app/log.js';
import { loadConfig, type Config } from './config.js';
import { AppError } from './errors.js';
import { redactText } from './redaction.js';

const SIGNALS = ['SIGINT', 'SIGTERM'] as const;

async function main(): Promise<void> {
  boundHeapGrowth();
  const config = loadConfig(process.env);
  // Standard output is for people; log lines go beside it.
  const log = createLog(config, pino.destination({ fd: 2, sync: true }));
  process.on('uncaughtException', (err) => {
    // Node would write it down with all that hangs on it.
    tellFatal(log, err, 'an error that nobody caught');
    process.exit(1);
  });
  try {
    await serve(config, log);
  } catch (error) {
    // What an AppError says is written for the person at the terminal; anything else needs its stack.
    if (error instanceof AppError) throw error;
    tellFatal(log, error, 'the server could not start');
    process.exitCode = 1;
  }
}

/** Nobody wants a silent log to hide why the process ended. */
function tellFatal(log: Logger, error: unknown, message: string): void {
  if (!log.isLevelEnabled('fatal')) console.error(redactText(inspect(error)));
  log.fatal({ err: error }, message);
}

async function serve(config: Config, log: Logger): Promise<void> {
  const stopRequested = new AbortController();
  for (const signal of SIGNALS) {
    process.on(signal, () => {
      if (stopRequested.signal.aborted) process.exit(130);
      stopRequested.abort();
    });
  }
  const app = await App.start(config, log);
  console.log(describe(app, config));
  const reason = await Promise.race([untilAborted(stopRequested.signal), app.failed]);
  if (reason) tellFatal(log, reason, 'the server cannot go on');
  else log.info('stopping');
  await app.stop();
  process.exitCode = reason ? 1 : 0;
}

function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

function describe(app: App, config: Config): string {
  if (app.url === null) return 'Runledger runs work (RUNLEDGER_ROLE=runner). Ctrl-C stops it.';
  const database = config.database.kind === 'embedded' ? config.database.dataDir : 'DATABASE_URL';
  const { href, origin } = new URL(app.url);
  return [
    '',
    `Runledger listens at ${href}`,
    '',
    `  Explore    ${href} in a browser`,
    `  Subscribe  ${href.replace(/^http/, 'ws')} (graphql-transport-ws)`,
    `  Health     ${origin}/readyz`,
    `  Database   ${database}`,
    '',
    'Try:',
    `  curl -s ${href} -H 'content-type: application/json' \\`,
    `    -d '{"query":"{ ruleRuns { nodes { id status counts { total applied failed } } } }"}'`,
    '',
    'Ctrl-C stops everything.',
  ].join('\n');
}

try {
  await main();
} catch (error) {
  console.error(redactText(error instanceof Error ? error.message : String(error)));
  process.exitCode = 1;
}
