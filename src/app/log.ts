// The log of a process: JSON, a line each, without secrets. Called by main.

import { pino, type DestinationStream, type Logger } from 'pino';
import type { Config } from '../config.js';
import { describeError, keepOwnSecret, redactFacts, redactText } from '../redaction.js';

export function createLog(config: Config, destination: DestinationStream): Logger {
  keepConfigSecrets(config);
  return pino(
    {
      name: 'runledger',
      level: config.logLevel,
      serializers: { err: describeError, error: describeError },
      formatters: { log: redactFacts },
      // Whatever way a secret took into a line, here it ends.
      hooks: { streamWrite: redactText },
    },
    destination,
  );
}

function keepConfigSecrets({ apiKey, secretKeys, webhookSecret, database, tracing }: Config): void {
  keepOwnSecret([apiKey, webhookSecret, ...secretKeys]);
  if (database.kind === 'external') keepOwnSecret(passwordIn(database.url));
  if (tracing) keepOwnSecret([passwordIn(tracing.url), tracing.headers]);
}

/** As it stands in the address, and as it is meant. */
function passwordIn(url: string): readonly string[] {
  const { password } = new URL(url);
  try {
    return [password, decodeURIComponent(password)];
  } catch {
    return [password];
  }
}
