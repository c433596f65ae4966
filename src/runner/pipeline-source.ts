// The source that a unit of pipeline work reads from, as this process has it open.

import type { OpenedSource } from '../connectors/source-registry.js';
import type { SourceFailure } from '../connectors/source.js';
import { AppError } from '../errors.js';
import type { Database } from '../store/db.js';
import type { SecretBox } from '../store/secret-box.js';
import { readSourceConfig, type StoredSource } from '../store/source.js';
import { ConnectorCache } from './connector-cache.js';

/** Throws INVALID_INPUT when the configuration cannot be used. */
export type OpenSource = (stored: StoredSource) => OpenedSource;

export class PipelineSources {
  readonly #cache: ConnectorCache<OpenedSource>;

  constructor(db: Database, secrets: SecretBox, open: OpenSource) {
    this.#cache = new ConnectorCache(
      async (id) => open(await readSourceConfig(db, secrets, id)),
      ({ source }) => source.close(),
    );
  }

  get({
    sourceId,
    sourceVersion,
  }: {
    readonly sourceId: string;
    readonly sourceVersion: string;
  }): Promise<OpenedSource> {
    return this.#cache.get(sourceId, sourceVersion);
  }
}

/** What a connector threw, as a failure: it costs a delivery, so that it cannot come back for ever. */
export function failureOf(error: unknown): SourceFailure {
  if (error instanceof AppError && error.code === 'INVALID_INPUT') {
    return { kind: 'permanent', message: error.message };
  }
  const message = `the connector failed: ${error instanceof Error ? error.message : String(error)}`;
  return { kind: 'transient', message, throttled: false };
}
