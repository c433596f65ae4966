// The sandbox as this process runs it: started with its memory in the database, and registered as a channel
// and a source of the default tenant. Several processes may each run one on the same database: they share
// its memory, and each reaches its own, so that none depends on another's being alive.

import type { Config } from '../config.js';
import { startSandbox, type Sandbox } from '../sandbox/server.js';
import { registerChannel } from '../store/channel.js';
import type { Database } from '../store/db.js';
import { StoredSandboxState } from '../store/sandbox-state.js';
import { registerSource } from '../store/source.js';

const TENANT = 'default';
const NAME = 'sandbox';

/** Large enough for several partitions; every record changes once in a quarter of an hour. */
const FEED = { size: 600, period: 900 };

interface Registered {
  readonly channelId: string;
  readonly sourceId: string;
}

export class LocalSandbox {
  readonly #sandbox: Sandbox;
  readonly #registered: Registered;

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

  private constructor(sandbox: Sandbox, registered: Registered) {
    this.#sandbox = sandbox;
    this.#registered = registered;
  }

  /** A channel's or a source's config; the sandbox's has the address of whichever process registered it last. */
  configOf({ id, config }: { readonly id: string; readonly config: unknown }): unknown {
    const { channelId, sourceId } = this.#registered;
    if (id === channelId) return { ...(config as object), ...channelConfig(this.#sandbox) };
    return id === sourceId ? { ...(config as object), ...sourceConfig(this.#sandbox) } : config;
  }

  stop(): Promise<void> {
    return this.#sandbox.stop();
  }
}

async function register(db: Database, sandbox: Sandbox): Promise<Registered> {
  const common = { tenantId: TENANT, name: NAME };
  return {
    sourceId: await registerSource(db, { ...common, kind: 'nivoda', config: sourceConfig(sandbox) }),
    channelId: await registerChannel(db, { ...common, kind: 'shopify', config: channelConfig(sandbox) }),
  };
}

function channelConfig({ adminUrl, accessToken }: Sandbox): Record<string, string> {
  return { endpoint: adminUrl, accessToken };
}

function sourceConfig(sandbox: Sandbox): Record<string, string> {
  return { ...sandbox.feedConfig('diamonds', FEED) };
}
