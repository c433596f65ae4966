// A channel as it is opened, and the port through which the API asks the connectors, which it does not know,
// about a kind of channel.

import type { Settings } from './settings.js';

/** A channel as it is opened: with its credentials. */
export interface StoredChannel {
  readonly id: string;
  readonly kind: string;
  readonly config: Settings;
}

export interface ChannelTest {
  readonly ok: boolean;
  /** Why not: AUTH, TIMEOUT, UPSTREAM …; null when all is well. */
  readonly code: string | null;
  readonly message: string;
  readonly latencyMs: number;
}

export interface ChannelKinds {
  /** The names of the settings that hold credentials; null when there is no such kind. */
  secretNames(kind: string): readonly string[] | null;
  /** Throws INVALID_INPUT that names every fault. */
  check(stored: StoredChannel): void;
  /** Makes one real call that changes nothing. */
  test(stored: StoredChannel): Promise<ChannelTest>;
}
