// The kinds of channel as the API may ask about them, without knowing any: which settings are secret,
// whether a config is sound, whether the channel answers. Made by app and handed to the resolvers.

import type { ChannelKinds, ChannelTest, StoredChannel } from '../domain/channel.js';
import { errorMessageOf } from '../domain/rule-target.js';
import type { Channel, Failure } from './channel.js';
import { timeoutFailure } from './failures.js';
import { refuseMisplaced, secretSettings, type OpenedChannel } from './registry.js';

const LONGEST_TEST_MS = 10_000;

type Open = (stored: StoredChannel) => OpenedChannel;

export class ConnectorKinds implements ChannelKinds {
  readonly #open: Open;

  /** Takes the way in which this process opens the channels that it works for. */
  constructor(open: Open) {
    this.#open = open;
  }

  secretNames(kind: string): readonly string[] | null {
    return secretSettings(kind);
  }

  check(stored: StoredChannel): void {
    this.#open(stored);
    refuseMisplaced(stored.kind, stored.config);
  }

  async test(stored: StoredChannel): Promise<ChannelTest> {
    const { channel } = this.#open(stored);
    const start = performance.now();
    const failure = await probe(channel);
    const latencyMs = Math.round(performance.now() - start);
    if (failure)
      return { ok: false, code: failure.code, message: errorMessageOf(failure.message), latencyMs };
    return { ok: true, code: null, message: 'The channel answers.', latencyMs };
  }
}

/** Somebody waits for it: a channel's own patience may be longer than theirs. */
async function probe(channel: Channel): Promise<Failure | null> {
  const signal = AbortSignal.timeout(LONGEST_TEST_MS);
  try {
    return await channel.probe(signal);
  } catch (error) {
    if (signal.aborted) return timeoutFailure(LONGEST_TEST_MS);
    throw error;
  }
}
