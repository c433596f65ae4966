// Any JSON endpoint as a sales channel: the Channel port over calls that the settings describe. Owns how a
// batch becomes calls and how an item's fields fill the templates; no credential leaves it in a message.

import { toDecimal } from '../../domain/money.js';
import { callKey, chunks, failOrHalve, isMoney, outcomes } from '../batch.js';
import { CallPool, type CallStep, type PooledCall } from '../call-pool.js';
import type { Channel, Failure, ItemOutcome, PriceChange, Readings } from '../channel.js';
import { invalid } from '../failures.js';
import { collectReadings, failOrHalveRead, type Reading } from '../readings.js';
import { judgeWrite, readPrices, type PriceList } from './answer.js';
import type { HttpConfig } from './config.js';
import { HttpClient, type HttpCall } from './http-client.js';
import { findPlaceholders, renderJson, renderText, renderUrl, type Fields } from './template.js';

const MAX_CALLS_IN_FLIGHT = 8;
const MAX_SINGLE_CALLS = 100;
const PROBE_ID = 'runledger-probe';
const PROBE_CURRENCY = 'EUR';

type Step = CallStep<ItemOutcome>;

export class HttpChannel implements Channel {
  readonly maxBatch: number;
  readonly #config: HttpConfig;
  readonly #client: HttpClient;
  readonly #secrets: Fields;

  constructor(config: HttpConfig) {
    this.#config = config;
    this.#client = new HttpClient(config);
    this.maxBatch = config.write.batch ? 2 * config.write.batch.max : MAX_SINGLE_CALLS;
    const entries = Object.entries(config.credentials);
    this.#secrets = Object.fromEntries(entries.map(([name, value]) => [`credentials.${name}`, value]));
  }

  async *applyPrices(
    batch: readonly PriceChange[],
    signal: AbortSignal,
    enough = signal,
  ): AsyncGenerator<readonly ItemOutcome[], void, undefined> {
    if (signal.aborted) return;
    const unsound = batch.filter((item) => !isMoney(item));
    if (unsound.length > 0) yield outcomes(unsound, invalid('Not an amount of a known currency'));
    const calls = chunks(batch.filter(isMoney), this.#config.write.batch?.max ?? 1);
    const pool = new CallPool<ItemOutcome>(MAX_CALLS_IN_FLIGHT, signal, enough);
    yield* pool.run(calls.map((items) => this.#write(items)));
  }

  fetchPrices(externalIds: readonly string[], currency: string, signal: AbortSignal): Promise<Readings> {
    const { read } = this.#config;
    const single = findPlaceholders([read.url, read.body ?? null]).has('externalId');
    const calls = chunks(externalIds, single ? 1 : read.max).map((ids) => this.#read(ids, currency));
    return collectReadings(externalIds, calls, MAX_CALLS_IN_FLIGHT, signal);
  }

  async probe(signal: AbortSignal): Promise<Failure | null> {
    // Nothing has this id: an endpoint that says so is one that answers.
    const list = await this.#readList([PROBE_ID], PROBE_CURRENCY, signal);
    return 'failure' in list ? this.#withoutSecrets(list.failure) : null;
  }

  #write(items: readonly PriceChange[]): PooledCall<ItemOutcome> {
    const again = (half: readonly PriceChange[]): PooledCall<ItemOutcome> => this.#write(half);
    return {
      size: items.length,
      run: async (signal): Promise<Step> => {
        const call = attempt(() => this.#writeCall(items));
        if ('failure' in call) return failOrHalve(items, this.#withoutSecrets(call.failure), outcomes, again);
        const answer = await this.#client.send(call, signal);
        if ('failure' in answer)
          return failOrHalve(items, this.#withoutSecrets(answer.failure), outcomes, again);
        const verdict = judgeWrite(items, answer.reply, this.#config.write.answer);
        if ('whole' in verdict)
          return failOrHalve(items, this.#withoutSecrets(verdict.whole), outcomes, again);
        return { results: verdict.results.map((result) => this.#cleared(result)), next: [] };
      },
    };
  }

  #writeCall(items: readonly PriceChange[]): HttpCall {
    const { write, idempotencyHeader } = this.#config;
    const key = callKey(items);
    const fields: Fields = write.batch
      ? { idempotencyKey: key, items: items.map((item) => renderJson(write.batch!.item, itemFields(item))) }
      : itemFields(items[0]!);
    return this.#call(write, { ...fields, ...this.#secrets }, { [idempotencyHeader.toLowerCase()]: key });
  }

  #read(ids: readonly string[], currency: string): PooledCall<Reading> {
    return {
      size: ids.length,
      run: async (signal) => {
        const list = await this.#readList(ids, currency, signal);
        if ('prices' in list) return { results: list.prices, next: [] };
        const failure = this.#withoutSecrets(list.failure);
        return failOrHalveRead(ids, failure, (half) => this.#read(half, currency));
      },
    };
  }

  async #readList(ids: readonly string[], currency: string, signal: AbortSignal): Promise<PriceList> {
    const { read } = this.#config;
    const fields = { externalId: ids[0], externalIds: ids, currency, ...this.#secrets };
    const call = attempt(() => this.#call(read, fields, {}));
    if ('failure' in call) return call;
    const answer = await this.#client.send(call, signal);
    return 'failure' in answer ? answer : readPrices(ids, answer.reply, read.answer, currency);
  }

  #call(
    template: HttpConfig['write'] | HttpConfig['read'],
    fields: Fields,
    ownHeaders: Readonly<Record<string, string>>,
  ): HttpCall {
    const { method, url, headers, body } = template;
    const rendered = Object.entries(headers).map(([name, value]) => [
      name.toLowerCase(),
      renderText(value, fields),
    ]);
    return {
      method,
      url: renderUrl(url, fields),
      headers: checkHeaders({
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...Object.fromEntries(rendered),
        ...ownHeaders,
      }),
      body: body === undefined ? null : JSON.stringify(renderJson(body, fields)),
    };
  }

  #cleared({ externalId, outcome }: ItemOutcome): ItemOutcome {
    return { externalId, outcome: outcome.kind === 'applied' ? outcome : this.#withoutSecrets(outcome) };
  }

  /** An endpoint may say back what it was sent. */
  #withoutSecrets<F extends Failure>(failure: F): F {
    const secrets = Object.values(this.#config.credentials);
    // In an address it stands encoded, in a body escaped.
    const forms = secrets.flatMap((secret) => [
      secret,
      encodeURIComponent(secret),
      JSON.stringify(secret).slice(1, -1),
    ]);
    return {
      ...failure,
      message: forms.reduce((text, form) => text.replaceAll(form, '***'), failure.message),
    };
  }
}

function itemFields(item: PriceChange): Fields {
  const decimal = toDecimal(item);
  return { ...item, decimal, decimalNumber: Number(decimal) };
}

/** An item may hold what no URL or header can: that is the item's fault, not the channel's. */
function attempt(build: () => HttpCall): HttpCall | { readonly failure: Failure } {
  try {
    return build();
  } catch (error) {
    if (error instanceof RangeError) return { failure: invalid(error.message) };
    throw error;
  }
}

function checkHeaders(headers: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  for (const [name, value] of Object.entries(headers)) {
    if (!/^[\t\x20-\x7e\x80-\xff]*$/.test(value))
      throw new RangeError(`The header ${name} cannot hold its value`);
  }
  return headers;
}
