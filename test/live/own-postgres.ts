// A PostgreSQL that a test may stop and start again without anybody else noticing.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startEmbeddedPostgres, type EmbeddedPostgres } from '../../src/postgres/embedded-postgres.js';
import { migrate } from '../../src/store/migrate.js';
import { MIGRATIONS } from '../support/database.js';

const silent = { info: () => {}, warn: () => {} };

export class OwnPostgres {
  private constructor(
    private readonly directory: string,
    private server: EmbeddedPostgres,
  ) {}

  static async start(): Promise<OwnPostgres> {
    const directory = await mkdtemp(join(tmpdir(), 'runledger-restarted-'));
    const server = await startEmbeddedPostgres({ dataDir: directory, log: silent, durable: false });
    await migrate(server.url, MIGRATIONS);
    return new OwnPostgres(directory, server);
  }

  get url(): string {
    return this.server.url;
  }

  async restart(): Promise<void> {
    await this.stop();
    await this.startAgain();
  }

  /** In the fast way, which cuts every session. */
  stop(): Promise<void> {
    return this.server.stop();
  }

  /** At the same address. */
  async startAgain(): Promise<void> {
    const port = Number(new URL(this.url).port);
    this.server = await startEmbeddedPostgres({
      dataDir: this.directory,
      log: silent,
      durable: false,
      port,
    });
  }

  async remove(): Promise<void> {
    await this.server.stop();
    await rm(this.directory, { recursive: true, force: true });
  }
}
