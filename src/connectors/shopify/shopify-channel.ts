// Shopify as a sales channel: the Channel port over the Admin GraphQL API. Owns how a batch becomes calls:
// look up each variant's product, group by product, write, and halve what is refused as a whole. Every
// item gets exactly one outcome. Used by the runner, one instance per channel.

import { fromDecimal } from '../../domain/money.js';
import { chunks, failOrHalve, isMoney, outcomes } from '../batch.js';
import { CallPool, type CallStep, type PooledCall } from '../call-pool.js';
import type { Channel, Failure, ItemOutcome, Metering, PriceChange, Readings } from '../channel.js';
import { invalid } from '../failures.js';
import { collectReadings, failOrHalveRead, type Reading } from '../readings.js';
import { AdminClient } from './admin-client.js';
import type { ShopifyConfig } from './config.js';
import { CostBudget, SYSTEM_CLOCK, type Clock } from './cost-budget.js';
import { batchCost, MAX_LIST, pricesCall, productsCall, updateCall, type UserError } from './operations.js';
import { ProductCache } from './product-cache.js';

const MAX_CALLS_IN_FLIGHT = 8;

type Step = CallStep<ItemOutcome>;
type Call = PooledCall<ItemOutcome>;

export class ShopifyChannel implements Channel {
  readonly maxBatch = 2 * MAX_LIST;
  readonly metering: Metering;
  readonly #client: AdminClient;
  readonly #products = new ProductCache();

  constructor(config: ShopifyConfig, clock: Clock = SYSTEM_CLOCK) {
    const points = new CostBudget(clock);
    this.#client = new AdminClient(config, points);
    this.metering = {
      get budget() {
        return points.level;
      },
      costOf: batchCost,
    };
  }

  async *applyPrices(
    batch: readonly PriceChange[],
    signal: AbortSignal,
    enough = signal,
  ): AsyncGenerator<readonly ItemOutcome[], void, undefined> {
    if (signal.aborted) return;
    const unsound = batch.filter((item) => !isMoney(item));
    if (unsound.length > 0) yield outcomes(unsound, invalid('Not an amount of a known currency'));
    const sound = batch.filter(isMoney);
    const unknown = sound.filter((item) => this.#products.get(item.externalId) === undefined);
    const calls = [...chunks(unknown, MAX_LIST).map((items) => this.#lookUp(items)), ...this.#updates(sound)];
    yield* new CallPool<ItemOutcome>(MAX_CALLS_IN_FLIGHT, signal, enough).run(calls);
  }

  fetchPrices(externalIds: readonly string[], currency: string, signal: AbortSignal): Promise<Readings> {
    const calls = chunks(externalIds, MAX_LIST).map((ids) => this.#readPrices(ids, currency));
    return collectReadings(externalIds, calls, MAX_CALLS_IN_FLIGHT, signal);
  }

  async probe(signal: AbortSignal): Promise<Failure | null> {
    const answer = await this.#client.call(pricesCall([]), signal);
    return answer.ok ? null : answer.failure;
  }

  /** Learns the products of the items, then writes; an item that the shop does not know ends here. */
  #lookUp(items: readonly PriceChange[]): Call {
    return {
      size: items.length,
      run: async (signal, enough) => {
        const call = productsCall(items.map((item) => item.externalId));
        const answer = await this.#client.call(call, signal, enough);
        if (!answer.ok) return this.#failed(items, answer.failure, (half) => this.#lookUp(half));
        answer.data.nodes.forEach((node, index) => {
          if (node?.product) this.#products.set(items[index]!.externalId, node.product.id);
        });
        const missing = items.filter((_, index) => !answer.data.nodes[index]?.product);
        const results = this.#refuse(missing, invalid('The shop has no such variant'));
        return { results, next: this.#updates(items) };
      },
    };
  }

  /** One call per product and 250 items, for the items whose product is known. */
  #updates(items: readonly PriceChange[]): Call[] {
    const byProduct = new Map<string, PriceChange[]>();
    for (const item of items) {
      const productId = this.#products.get(item.externalId);
      if (productId === undefined) continue;
      const group = byProduct.get(productId);
      if (group) group.push(item);
      else byProduct.set(productId, [item]);
    }
    return [...byProduct].flatMap(([productId, group]) =>
      chunks(group, MAX_LIST).map((chunk) => this.#update(productId, chunk)),
    );
  }

  #update(productId: string, items: readonly PriceChange[]): Call {
    const again = (half: readonly PriceChange[]): Call => this.#update(productId, half);
    return {
      size: items.length,
      run: async (signal, enough) => {
        const answer = await this.#client.call(updateCall(productId, items), signal, enough);
        if (!answer.ok) return this.#failed(items, answer.failure, again);
        return this.#settled(items, answer.data.productVariantsBulkUpdate.userErrors, again);
      },
    };
  }

  /** Errors that name an item are that item's; one that names none concerns all the others. */
  #settled(
    items: readonly PriceChange[],
    userErrors: readonly UserError[],
    again: (half: readonly PriceChange[]) => Call,
  ): Step {
    const named = new Map<PriceChange, string>();
    const unnamed: string[] = [];
    for (const { field, message } of userErrors) {
      const item = itemAt(items, field);
      if (item) named.set(item, message);
      else unnamed.push(message);
    }
    const refused = [...named].flatMap(([item, message]) => this.#refuse([item], invalid(message)));
    const others = items.filter((item) => !named.has(item));
    if (unnamed.length === 0)
      return { results: [...refused, ...outcomes(others, { kind: 'applied' })], next: [] };
    const rest = this.#failed(others, invalid(unnamed.join('; ')), again);
    return { results: [...refused, ...rest.results], next: rest.next };
  }

  #failed(
    items: readonly PriceChange[],
    failure: Failure,
    again: (half: readonly PriceChange[]) => Call,
  ): Step {
    const step = failOrHalve(items, failure, outcomes, again);
    if (failure.kind === 'permanent')
      for (const { externalId } of step.results) this.#products.forget(externalId);
    return step;
  }

  #refuse(items: readonly PriceChange[], failure: Failure): ItemOutcome[] {
    for (const item of items) this.#products.forget(item.externalId);
    return outcomes(items, failure);
  }

  #readPrices(ids: readonly string[], currency: string): PooledCall<Reading> {
    return {
      size: ids.length,
      run: async (signal) => {
        const answer = await this.#client.call(pricesCall(ids), signal);
        if (!answer.ok)
          return failOrHalveRead(ids, answer.failure, (half) => this.#readPrices(half, currency));
        const results = answer.data.nodes.flatMap((node, index) =>
          node?.price === undefined ? [] : [[ids[index]!, amountOf(node.price, currency)] as const],
        );
        return { results, next: [] };
      },
    };
  }
}

function amountOf(price: string, currency: string): number | Failure {
  return fromDecimal(price, currency) ?? invalid(`The shop's price ${price} is no amount of ${currency}`);
}

/** The item that a path like ["variants", "3", "price"] points at. */
function itemAt(items: readonly PriceChange[], field: UserError['field']): PriceChange | undefined {
  const [list, index = ''] = field ?? [];
  return list === 'variants' && /^\d+$/.test(index) ? items[Number(index)] : undefined;
}
