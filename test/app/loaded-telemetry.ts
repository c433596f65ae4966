// Starts a server as its environment says, prints which packages of OpenTelemetry's SDK that has loaded, and ends.
import { createRequire } from 'node:module';
import { pino } from 'pino';
import { App } from '../../src/app.js';
import { loadConfig } from '../../src/config.js';

const app = await App.start(loadConfig(process.env), pino({ level: 'silent' }));
await app.stop();
const loaded = Object.keys(createRequire(import.meta.url).cache).flatMap(
  (path) => /@opentelemetry\/(sdk-trace|exporter-[\w-]+)\//.exec(path)?.[1] ?? [],
);
console.log(JSON.stringify([...new Set(loaded)].toSorted()));
