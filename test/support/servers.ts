// Servers as processes of their own, for the tests that kill them.
import { afterEach } from 'vitest';
import { ServerProcess } from './app.js';

type Spawn = (overrides?: Readonly<Record<string, string>>) => Promise<ServerProcess>;

/** Answers how a test file spawns servers on its database. What a test leaves running is killed after it. */
export function useServers(databaseUrl: () => string): Spawn {
  const servers: ServerProcess[] = [];
  // A server that a failed test left behind would take the next test's work.
  afterEach(() => Promise.all(servers.splice(0).map((server) => server.end('SIGKILL'))));
  return async (overrides = {}) => {
    const server = await ServerProcess.spawn(databaseUrl(), overrides);
    servers.push(server);
    return server;
  };
}
