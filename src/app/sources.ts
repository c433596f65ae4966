// How this process reaches supplier sources: the key to their credentials, the server's default figures, and its
// own sandbox in place of whichever registered last. One for the runner and the API alike.

import type { Logger } from 'pino';
import type { Config } from '../config.js';
import {
  openSource,
  secretsOfSource,
  type OpenedSource,
  type SourceDefaults,
} from '../connectors/source-registry.js';
import { DEFAULT_RETRY_POLICY } from '../domain/retry-policy.js';
import type { SettingKinds, Settings } from '../domain/settings.js';
import type { RunnerObserver } from '../runner/observer.js';
import { PipelineConsolidation } from '../runner/pipeline-consolidation.js';
import { PipelinePages } from '../runner/pipeline-pages.js';
import { PipelinePlans } from '../runner/pipeline-plans.js';
import { PipelineSources } from '../runner/pipeline-source.js';
import type { WorkKind } from '../runner/work.js';
import type { Database } from '../store/db.js';
import type { SecretBox } from '../store/secret-box.js';
import type { StoredSource } from '../store/source.js';
import type { LocalSandbox } from './sandbox.js';

export class SourceAccess implements SettingKinds {
  readonly #secrets: SecretBox;
  readonly #sandbox: LocalSandbox | null;
  readonly #defaults: SourceDefaults;

  constructor({ callTimeoutMs, filesDir, retry }: Config, secrets: SecretBox, sandbox: LocalSandbox | null) {
    this.#secrets = secrets;
    this.#sandbox = sandbox;
    this.#defaults = { callTimeoutMs, filesDir, retry: { ...DEFAULT_RETRY_POLICY, ...retry } };
  }

  secretNames(kind: string): readonly string[] | null {
    return secretsOfSource(kind);
  }

  check(kind: string, config: Settings): void {
    openSource(kind, config, this.#defaults).source.close();
  }

  /** The kinds of work that read sources. */
  work(db: Database, leaseMs: number, log: Logger, observer: RunnerObserver): WorkKind[] {
    const { retry } = this.#defaults;
    const sources = new PipelineSources(db, this.#secrets, (stored) => this.#open(stored));
    const options = { db, sources, leaseMs, retry, log, observer };
    return [new PipelinePlans(options), new PipelinePages(options), new PipelineConsolidation(options)];
  }

  #open(stored: StoredSource): OpenedSource {
    return openSource(stored.kind, this.#sandbox?.configOf(stored) ?? stored.config, this.#defaults);
  }
}
