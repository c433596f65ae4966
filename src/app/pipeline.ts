// The pipeline as this process works it: the server's default figures for sources, its own sandbox in place of
// whichever registered last, and the three kinds of work.

import type { Logger } from 'pino';
import type { Config } from '../config.js';
import { openSource, type SourceDefaults } from '../connectors/source-registry.js';
import { DEFAULT_RETRY_POLICY } from '../domain/retry-policy.js';
import { PipelineConsolidation } from '../runner/pipeline-consolidation.js';
import { PipelinePages } from '../runner/pipeline-pages.js';
import { PipelinePlans } from '../runner/pipeline-plans.js';
import { PipelineSources } from '../runner/pipeline-source.js';
import type { WorkKind } from '../runner/work.js';
import type { Database } from '../store/db.js';
import type { LocalSandbox } from './sandbox.js';

export function pipelineKinds(
  db: Database,
  config: Config,
  sandbox: LocalSandbox | null,
  log: Logger,
): WorkKind[] {
  const { callTimeoutMs, filesDir, leaseMs } = config;
  const retry = { ...DEFAULT_RETRY_POLICY, ...config.retry };
  const defaults: SourceDefaults = { callTimeoutMs, filesDir, retry };
  const sources = new PipelineSources(db, (stored) =>
    openSource(stored.kind, sandbox?.configOf(stored) ?? stored.config, defaults),
  );
  const options = { db, sources, leaseMs, retry, log };
  return [new PipelinePlans(options), new PipelinePages(options), new PipelineConsolidation(options)];
}
