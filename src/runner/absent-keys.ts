// Channels whose credentials this process has no key to, as while a key is being replaced: another process has it,
// so none of their work fails for that. They are passed over here for a while, and then tried again.

import { MissingKey } from '../store/secret-box.js';
import type { Log } from './log.js';

const PASS_OVER_MS = 60_000;

export class AbsentKeys {
  readonly #log: Log;
  /** By the channel's id, until when it is passed over. */
  readonly #until = new Map<string, number>();

  constructor(log: Log) {
    this.#log = log;
  }

  /** What `open` gives; null when there is no key, and from then on the channel is passed over. */
  async open<Opened>(channelId: string, open: () => Promise<Opened>): Promise<Opened | null> {
    try {
      return await open();
    } catch (error) {
      if (!(error instanceof MissingKey)) throw error;
      this.#until.set(channelId, performance.now() + PASS_OVER_MS);
      const facts = { channelId, reason: error.message };
      this.#log.warn(facts, 'a channel is left to processes that have its key');
      return null;
    }
  }

  /** Those to pass over now. */
  channels(): string[] {
    const now = performance.now();
    for (const [channelId, until] of this.#until) if (until <= now) this.#until.delete(channelId);
    return [...this.#until.keys()];
  }
}
