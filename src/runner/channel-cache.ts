// The channels that this process has open, one instance per channel and version of its configuration: an
// instance remembers what it learnt of the channel's limits. The oldest gives way.

import type { OpenedChannel } from '../connectors/registry.js';
import type { StoredChannel } from '../domain/channel.js';
import { readChannelConfig } from '../store/channel-config.js';
import type { Database } from '../store/db.js';
import type { SecretBox } from '../store/secret-box.js';

/** Throws INVALID_INPUT when the configuration cannot be used. */
export type OpenChannel = (stored: StoredChannel) => OpenedChannel;

const MAX_OPEN = 1_000;

export class ChannelCache {
  readonly #db: Database;
  readonly #secrets: SecretBox;
  readonly #open: OpenChannel;
  readonly #channels = new Map<string, { readonly version: string; readonly opened: OpenedChannel }>();

  constructor(db: Database, secrets: SecretBox, open: OpenChannel) {
    this.#db = db;
    this.#secrets = secrets;
    this.#open = open;
  }

  async get(channelId: string, version: string): Promise<OpenedChannel> {
    const known = this.#channels.get(channelId);
    if (known?.version === version) return known.opened;
    const opened = this.#open(await readChannelConfig(this.#db, this.#secrets, channelId));
    this.#channels.delete(channelId);
    this.#channels.set(channelId, { version, opened });
    this.#forgetOldest();
    return opened;
  }

  #forgetOldest(): void {
    if (this.#channels.size <= MAX_OPEN) return;
    for (const oldest of this.#channels.keys()) {
      this.#channels.delete(oldest);
      return;
    }
  }
}
