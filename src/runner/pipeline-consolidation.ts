// Consolidation as a kind of work: a unit is one batch of raw items, mapped and priced in this process and
// written in the transaction that has them locked. Any number of workers share a run; the one that finds
// nothing left completes it.

import type { Source } from '../connectors/source.js';
import { checkCatalogItems, type NewCatalogItem } from '../domain/catalog-item.js';
import type { RuleDefinition } from '../domain/pricing-rule.js';
import { priceByRules } from '../domain/pricing-rule-order.js';
import { nextDelayMs } from '../domain/retry-policy.js';
import { AppError } from '../errors.js';
import { completeIfDone, recoverCompletions } from '../store/completion.js';
import {
  consolidateBatch,
  findConsolidatingRuns,
  nextConsolidationDelayMs,
  retryConsolidation,
  type ConsolidatingRun,
  type MappedBatch,
} from '../store/consolidation.js';
import { listEnabledRules } from '../store/pricing-rule.js';
import type { RawItem } from '../store/raw-item.js';
import type { RejectedRecord } from '../store/rejected-record.js';
import { tellingOf } from './log.js';
import { observeSettle } from './observed-feed.js';
import type { PipelineOptions } from './pipeline-plans.js';
import type { Work, WorkKind, WorkResult } from './work.js';

/** How long a run is left alone in which others have all that is left. */
const REST_MS = 50;

export class PipelineConsolidation implements WorkKind {
  readonly name = 'pipeline_consolidation';
  readonly #options: PipelineOptions;
  /** By run: items up to here were taken by this process. What others left behind is found at the end. */
  readonly #cursors = new Map<string, string>();
  readonly #restingUntil = new Map<string, number>();
  #served = 0;

  constructor(options: PipelineOptions) {
    this.#options = options;
  }

  /** Of completions: the rows that a batch of a dead worker had locked are unlocked by the database. */
  recover(deadWorkerIds: readonly string[]): Promise<number> {
    return recoverCompletions(this.#options.db, deadWorkerIds);
  }

  async nextDueMs(): Promise<number | null> {
    const resting = this.#findResting();
    const ms = await nextConsolidationDelayMs(this.#options.db, resting);
    return resting.length === 0 ? ms : Math.min(ms ?? Infinity, REST_MS);
  }

  async claim(workerId: string): Promise<Work | null> {
    const runs = await findConsolidatingRuns(this.#options.db, this.#findResting());
    this.#served += 1;
    const run = runs[this.#served % runs.length];
    if (!run) return null;
    const { runId } = run;
    return {
      leases: 1,
      run: { kind: 'PIPELINE', ...tellingOf({ runId }) },
      process: () => this.#process(run, workerId),
    };
  }

  #findResting(): string[] {
    const now = performance.now();
    for (const [id, until] of this.#restingUntil) if (until <= now) this.#restingUntil.delete(id);
    return [...this.#restingUntil.keys()];
  }

  async #process(run: ConsolidatingRun, workerId: string): Promise<WorkResult> {
    try {
      await this.#consolidate(run, workerId);
      return 'success';
    } catch (error) {
      // Without a database there is nobody to tell; the batch was undone, and comes again.
      if (error instanceof AppError && error.code === 'UNAVAILABLE') throw error;
      const { db, log, retry, random = Math.random } = this.#options;
      log.error({ err: error, ...tellingOf({ runId: run.runId }) }, 'a batch could not be consolidated');
      const message = `consolidation broke: ${error instanceof Error ? error.message : String(error)}`;
      const delayMs = nextDelayMs(retry, run.attempts + 1, false, random);
      await retryConsolidation(db, { run, workerId, message, delayMs });
      return 'failure';
    }
  }

  async #consolidate(run: ConsolidatingRun, workerId: string): Promise<void> {
    const { db, sources, observer, leaseMs } = this.#options;
    const { runId } = run;
    const { source } = await sources.get(run);
    const rules = await listEnabledRules(db, run);
    const after = this.#cursors.get(runId) ?? '';
    const consolidate = () =>
      consolidateBatch(db, run, {
        workerId,
        after,
        onLocked: (last) => this.#cursors.set(runId, last),
        map: (items) => mapBatch(source, rules, items),
      });
    const told = { kind: 'PIPELINE', ...tellingOf({ runId }) } as const;
    const eventsOf = (items: number) => (items === 0 ? null : { consolidate: items });
    const count = await observeSettle('pipeline_consolidation', told, observer, consolidate, eventsOf);
    if (count > 0) return;
    // The end of the list: what was passed over, because others had it, lies before.
    this.#cursors.delete(runId);
    if (after !== '' || (await completeIfDone(db, { runId, workerId, leaseMs }))) return;
    this.#restingUntil.set(runId, performance.now() + REST_MS);
  }
}

/** Pure. A record that is no item is set aside; one that breaks the mapping, too. */
function mapBatch(source: Source, rules: readonly RuleDefinition[], raw: readonly RawItem[]): MappedBatch {
  const mapped: NewCatalogItem[] = [];
  const rejected: RejectedRecord[] = [];
  const reject = ({ externalId, payload }: RawItem, reason: string): void => {
    rejected.push({ externalId, reason, json: JSON.stringify(payload) });
  };
  const sources: RawItem[] = [];
  for (const item of raw) {
    const result = mapItem(source, rules, item);
    if ('reason' in result) reject(item, result.reason);
    else {
      mapped.push(result);
      sources.push(item);
    }
  }
  const { faults } = checkCatalogItems(mapped);
  const faulty = new Map(
    faults.map(({ path, message }) => [Number(path[0]), `${path.slice(1).join('.')} ${message}`]),
  );
  for (const [index, reason] of faulty) reject(sources[index]!, reason);
  return { items: mapped.filter((_, index) => !faulty.has(index)), rejected };
}

function mapItem(
  source: Source,
  rules: readonly RuleDefinition[],
  { externalId, payload }: RawItem,
): NewCatalogItem | { readonly reason: string } {
  try {
    const item = source.mapRecord(payload);
    if ('reason' in item) return item;
    const named = { externalId, ...item };
    return { ...named, unitAmount: priceByRules(rules, named) };
  } catch (error) {
    return {
      reason: `the record cannot be mapped: ${error instanceof Error ? error.message : String(error)}`,
    };
  }
}
