// The sandbox as this process runs it: started with its memory in the database, and registered as a channel
// and a source of the default tenant. Several processes may each run one on the same database: they share
// its memory, and each reaches its own, so that none depends on another's being alive.

import type { Config } from '../config.js';
import type { StoredChannel } from '../domain/channel.js';
import { startSandbox, type Sandbox } from '../sandbox/server.js';
import { registerChannel, registerSource } from '../store/channel.js';
import type { Database } from '../store/db.js';
import { StoredSandboxState } from '../store/sandbox-state.js';

const TENANT = 'default';
const NAME = 'sandbox';

export class LocalSandbox {
  readonly #sandbox: Sandbox;
  readonly #channelId: string;

  static async open(db: Database, config: Config): Promise<LocalSandbox> {
    const { restorePerSecond } = config.sandbox;
    const sandbox = await startSandbox({
      state: new StoredSandboxState(db, TENANT),
      ...(restorePerSecond === null ? {} : { restorePerSecond }),
    });
    try {
      return new LocalSandbox(sandbox, await register(db, sandbox));
    } catch (error) {
      await sandbox.stop();
      throw error;
    }
  }

  private constructor(sandbox: Sandbox, channelId: string) {
    this.#sandbox = sandbox;
    this.#channelId = channelId;
  }

  /** A channel's config; the sandbox's has the address of whichever process registered it last. */
  configOf({ id, config }: StoredChannel): unknown {
    return id === this.#channelId ? { ...(config as object), ...channelConfig(this.#sandbox) } : config;
  }

  stop(): Promise<void> {
    return this.#sandbox.stop();
  }
}

async function register(db: Database, sandbox: Sandbox): Promise<string> {
  await registerSource(db, { tenantId: TENANT, name: NAME, kind: 'nivoda', config: { url: sandbox.url } });
  return registerChannel(db, {
    tenantId: TENANT,
    name: NAME,
    kind: 'shopify',
    config: channelConfig(sandbox),
  });
}

function channelConfig({ adminUrl, accessToken }: Sandbox): Record<string, string> {
  return { endpoint: adminUrl, accessToken };
}
