// A channel of kind http whose prices a test can look at and change behind Runledger's back: ten items a call,
// twenty a claim, so that small runs have several pages.
import type { Database } from '../../src/store/db.js';
import { batchForm, idsIn } from '../connectors/http/support.js';
import { ScriptedServer, type ScriptedReply } from '../connectors/support.js';

export class PriceBook {
  readonly prices = new Map<string, number>();
  reads = 0;
  /** Given to a read instead of prices, when it is not null. */
  fault: (ids: readonly string[]) => ScriptedReply | null | Promise<ScriptedReply | null> = () => null;
  #server!: ScriptedServer;

  static async start(): Promise<PriceBook> {
    const book = new PriceBook();
    book.#server = await ScriptedServer.start((call) =>
      call.path === '/prices' ? book.#write(call.body) : book.#read(idsIn(call)),
    );
    return book;
  }

  /** Makes the channel `name` of tenant `default` one of this book, with this policy and nothing remembered. */
  async serve(db: Database, name: string, policy: object = {}): Promise<void> {
    await db.query(
      `UPDATE channel SET kind = 'http', config = $2, updated_at = clock_timestamp(),
         bucket_tokens = NULL, bucket_capacity = NULL, bucket_restore_per_s = NULL, bucket_at = NULL
       WHERE tenant_id = 'default' AND name = $1`,
      [name, JSON.stringify({ ...batchForm(this.#server.origin), policy })],
    );
  }

  get origin(): string {
    return this.#server.origin;
  }

  stop(): Promise<void> {
    return this.#server.stop();
  }

  #write(body: string): ScriptedReply {
    const { updates } = JSON.parse(body) as { updates: { sku: string; amount: number }[] };
    for (const { sku, amount } of updates) this.prices.set(sku, amount);
    return { body: { results: updates.map(({ sku }) => ({ sku, status: 'ok' })) } };
  }

  async #read(ids: readonly string[]): Promise<ScriptedReply> {
    this.reads += 1;
    const fault = await this.fault(ids);
    if (fault) return fault;
    const known = ids.filter((id) => this.prices.has(id));
    return { body: { prices: known.map((sku) => ({ sku, amount: this.prices.get(sku) })) } };
  }
}
