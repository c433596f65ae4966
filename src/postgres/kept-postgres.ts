// The embedded PostgreSQL for as long as the server runs: one that ends by itself (killed, out of memory) is started
// again at the same address, where everybody who waits for the database finds it. One that keeps ending is given up,
// since a restart does not mend what ends it. Called by app.
import {
  startEmbeddedPostgres,
  type EmbeddedPostgres,
  type EmbeddedPostgresOptions,
} from './embedded-postgres.js';
import type { PostgresExit } from './postmaster.js';

/** It is started again so often within the time below. */
const MAX_RESTARTS = 3;
const WITHIN_MS = 5 * 60_000;

/** `exited` settles when it has been stopped, or given up. */
export async function keepEmbeddedPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  return new KeptPostgres(await startEmbeddedPostgres(options), options);
}

class KeptPostgres implements EmbeddedPostgres {
  readonly url: string;
  readonly exited: Promise<PostgresExit>;
  readonly #options: EmbeddedPostgresOptions;
  readonly #restarts: number[] = [];
  #current: EmbeddedPostgres;
  #starting: Promise<unknown> = Promise.resolve();
  #isStopping = false;

  constructor(first: EmbeddedPostgres, options: EmbeddedPostgresOptions) {
    this.#current = first;
    this.#options = { ...options, port: Number(new URL(first.url).port) };
    this.url = first.url;
    this.exited = this.#keep();
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
    await this.#starting;
    await this.#current.stop();
  }

  async #keep(): Promise<PostgresExit> {
    for (;;) {
      const exit = await this.#current.exited;
      if (exit.expected || this.#isStopping || !this.#mayRestart()) return exit;
      this.#options.log.warn(`${exit.message}\nStarting it again.`);
      const started = this.#startAgain();
      this.#starting = started;
      const fault = await started;
      if (fault !== null) return { expected: false, message: fault };
    }
  }

  #mayRestart(): boolean {
    const now = performance.now();
    this.#restarts.push(now);
    return this.#restarts.filter((at) => at > now - WITHIN_MS).length <= MAX_RESTARTS;
  }

  /** Answers why it could not be, or null. */
  async #startAgain(): Promise<string | null> {
    try {
      // What has ended still has the directory.
      await this.#current.stop();
      this.#current = await startEmbeddedPostgres(this.#options);
      return null;
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
  }
}
