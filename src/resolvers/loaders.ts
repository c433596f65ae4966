// Rows by key, many in one read: whatever can be reached through a list is loaded here.

import DataLoader from 'dataloader';
import type { Mismatch, Unread } from '../domain/reconciliation.js';
import type { Viewer } from '../domain/viewer.js';
import { findCatalogItems, type CatalogItemRow } from '../store/catalog-item.js';
import { findChannels, type ChannelRow } from '../store/channel.js';
import type { Database } from '../store/db.js';
import {
  listRunEvents,
  listTargetHistories,
  type EventPageRequest,
  type RunEventRow,
} from '../store/ledger.js';
import type { Page } from '../store/page.js';
import { listPartitions, type PartitionRow } from '../store/partition.js';
import { findPipelineRuns, type PipelineRunRow } from '../store/pipeline-run.js';
import { findPricingRules, type PricingRuleRow } from '../store/pricing-rule.js';
import {
  listFindings,
  listReconciliations,
  type FindingsRequest,
  type ReconciliationRow,
} from '../store/reconciliation.js';
import {
  listRejectedRecords,
  type RejectedPageRequest,
  type RejectedRecordRow,
} from '../store/rejected-record.js';
import { findRuleRuns, measurePaces, type Pace, type RuleRunRow } from '../store/rule-run-row.js';
import {
  findRuleTargets,
  listRuleTargets,
  type RuleTargetRow,
  type TargetPageRequest,
} from '../store/rule-target.js';
import { findSources, type SourceRow } from '../store/source.js';
import { findRulePreviews, type RulePreviewRow } from '../store/target-summary.js';

/** A verb of the store that answers for many keys; a key it does not mention has no row. */
type ReadMany<Row> = (
  db: Database,
  viewer: Viewer,
  keys: readonly string[],
) => Promise<ReadonlyMap<string, Row>>;

/** One that answers a request for many runs. */
type ReadPages<Request, Row> = (
  db: Database,
  viewer: Viewer,
  runIds: readonly string[],
  request: Request,
) => Promise<ReadonlyMap<string, Page<Row>>>;

export class Loaders {
  readonly pricingRule: DataLoader<string, PricingRuleRow | null>;
  readonly catalogItem: DataLoader<string, CatalogItemRow | null>;
  readonly channel: DataLoader<string, ChannelRow | null>;
  readonly source: DataLoader<string, SourceRow | null>;
  readonly ruleRun: DataLoader<string, RuleRunRow | null>;
  readonly pipelineRun: DataLoader<string, PipelineRunRow | null>;
  readonly ruleTarget: DataLoader<string, RuleTargetRow | null>;
  /** By target. */
  readonly history: DataLoader<string, readonly RunEventRow[] | null>;
  /** By run, as are those below. */
  readonly reconciliations: DataLoader<string, readonly ReconciliationRow[] | null>;
  readonly rulePreview: DataLoader<string, RulePreviewRow | null>;
  readonly pace: DataLoader<string, Pace | null>;
  readonly partitions: DataLoader<string, readonly PartitionRow[] | null>;
  readonly rejectedRecords: PageLoader<RejectedPageRequest, RejectedRecordRow>;
  readonly ruleTargets: PageLoader<TargetPageRequest, RuleTargetRow>;
  readonly runEvents: PageLoader<EventPageRequest, RunEventRow>;
  /** By report. */
  readonly findings: PageLoader<FindingsRequest, Mismatch | Unread>;

  constructor(
    private readonly db: Database,
    private readonly viewer: Viewer,
    stuckMs: number,
  ) {
    this.pricingRule = this.rows(findPricingRules);
    this.catalogItem = this.rows(findCatalogItems);
    this.channel = this.rows(findChannels);
    this.source = this.rows(findSources);
    this.ruleRun = this.rows(findRuleRuns);
    this.pipelineRun = this.rows(findPipelineRuns);
    this.ruleTarget = this.rows(findRuleTargets);
    this.history = this.rows(listTargetHistories);
    this.reconciliations = this.rows(listReconciliations);
    this.rulePreview = this.rows(findRulePreviews);
    this.pace = this.rows(measurePaces);
    this.partitions = this.rows((...args) => listPartitions(...args, stuckMs));
    this.rejectedRecords = this.pages(listRejectedRecords);
    this.ruleTargets = this.pages(listRuleTargets);
    this.runEvents = this.pages(listRunEvents);
    this.findings = this.pages<FindingsRequest, Mismatch | Unread>(listFindings);
  }

  private rows<Row>(readMany: ReadMany<Row>): DataLoader<string, Row | null> {
    return loadEach((keys) => readMany(this.db, this.viewer, keys));
  }

  private pages<Request, Row>(readPages: ReadPages<Request, Row>): PageLoader<Request, Row> {
    return new PageLoader((runIds, request) => readPages(this.db, this.viewer, runIds, request));
  }
}

/** Pages of many runs: all that are asked for with the same arguments are read at once. */
class PageLoader<Request, Row> {
  private readonly byRequest = new Map<string, DataLoader<string, Page<Row> | null>>();

  constructor(
    private readonly read: (
      runIds: readonly string[],
      request: Request,
    ) => Promise<ReadonlyMap<string, Page<Row>>>,
  ) {}

  async load(runId: string, request: Request): Promise<Page<Row>> {
    const name = JSON.stringify(request);
    const loader = this.byRequest.get(name) ?? loadEach((runIds) => this.read(runIds, request));
    this.byRequest.set(name, loader);
    return (await loader.load(runId))!;
  }
}

/**
 * Joins the reads of one moment, and remembers nothing: of two mutations in one operation, the second must not
 * be answered with what the first one saw.
 */
function loadEach<Row>(
  read: (keys: readonly string[]) => Promise<ReadonlyMap<string, Row>>,
): DataLoader<string, Row | null> {
  const loadMany = async (keys: readonly string[]): Promise<(Row | null)[]> => {
    const rows = await read([...new Set(keys)]);
    return keys.map((key) => rows.get(key) ?? null);
  };
  return new DataLoader(loadMany, { cache: false });
}
