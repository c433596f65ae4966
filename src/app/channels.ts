// How this process reaches sales channels: the key to their credentials, the server's default figures, and
// its own sandbox in place of whichever registered last. One for the runner and the API alike.

import type { Config } from '../config.js';
import { ConnectorKinds } from '../connectors/kinds.js';
import { openChannel, type ChannelDefaults, type OpenedChannel } from '../connectors/registry.js';
import type { StoredChannel } from '../domain/channel.js';
import { DEFAULT_RETRY_POLICY } from '../domain/retry-policy.js';
import { ConnectorCache } from '../runner/connector-cache.js';
import { readChannelConfig } from '../store/channel-config.js';
import type { Database } from '../store/db.js';
import type { SecretBox } from '../store/secret-box.js';
import type { LocalSandbox } from './sandbox.js';

/** The circuit opens with the first throttled call after so many in a row. */
const TOLERATED_THROTTLES = 5;

export class ChannelAccess {
  readonly secrets: SecretBox;
  readonly kinds = new ConnectorKinds((stored) => this.open(stored));
  /** Shared by all that calls channels, so that each channel is paced as one. */
  readonly opened: ConnectorCache<OpenedChannel>;
  readonly #sandbox: LocalSandbox | null;
  readonly #defaults: ChannelDefaults;

  constructor(config: Config, db: Database, secrets: SecretBox, sandbox: LocalSandbox | null) {
    this.secrets = secrets;
    this.opened = new ConnectorCache(async (id) => this.open(await readChannelConfig(db, secrets, id)));
    this.#sandbox = sandbox;
    this.#defaults = defaultsOf(config);
  }

  /** Throws INVALID_INPUT when the configuration cannot be used. */
  open(stored: StoredChannel): OpenedChannel {
    return openChannel(stored.kind, this.#sandbox?.configOf(stored) ?? stored.config, this.#defaults);
  }
}

function defaultsOf({ callTimeoutMs, retry, circuitOpenMs }: Config): ChannelDefaults {
  return {
    callTimeoutMs,
    retry: { ...DEFAULT_RETRY_POLICY, ...retry },
    circuit: { toleratedThrottles: TOLERATED_THROTTLES, openMs: circuitOpenMs },
  };
}
