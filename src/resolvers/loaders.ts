// Rows by id, many in one read: whatever is reached through a list is loaded here, once per operation.

import DataLoader from 'dataloader';
import type { Viewer } from '../domain/viewer.js';
import { findCatalogItems, type CatalogItemRow } from '../store/catalog-item.js';
import { findChannels, type ChannelRow } from '../store/channel.js';
import type { Database } from '../store/db.js';
import { listTargetHistories, type RunEventRow } from '../store/ledger.js';
import { findPricingRules, type PricingRuleRow } from '../store/pricing-rule.js';
import { findRuleRuns, type RuleRunRow } from '../store/rule-run.js';

/** A verb of the store that answers for many keys; a key it does not mention has no row. */
type ReadMany<Row> = (
  db: Database,
  viewer: Viewer,
  keys: readonly string[],
) => Promise<ReadonlyMap<string, Row>>;

export class Loaders {
  readonly ruleRun: DataLoader<string, RuleRunRow | null>;
  readonly pricingRule: DataLoader<string, PricingRuleRow | null>;
  readonly catalogItem: DataLoader<string, CatalogItemRow | null>;
  readonly channel: DataLoader<string, ChannelRow | null>;
  readonly targetHistory: DataLoader<string, readonly RunEventRow[] | null>;

  constructor(
    private readonly db: Database,
    private readonly viewer: Viewer,
  ) {
    this.ruleRun = this.load(findRuleRuns);
    this.pricingRule = this.load(findPricingRules);
    this.catalogItem = this.load(findCatalogItems);
    this.channel = this.load(findChannels);
    this.targetHistory = this.load(listTargetHistories);
  }

  private load<Row>(readMany: ReadMany<Row>): DataLoader<string, Row | null> {
    return new DataLoader(async (keys) => {
      const rows = await readMany(this.db, this.viewer, keys);
      return keys.map((key) => rows.get(key) ?? null);
    });
  }
}
