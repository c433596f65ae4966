// What the sandbox's shop remembers, kept in the database: a restarted server, or a second one, finds the
// shop as it was.

import type { Database } from './db.js';

export class StoredSandboxState {
  readonly #db: Database;
  readonly #tenantId: string;

  constructor(db: Database, tenantId: string) {
    this.#db = db;
    this.#tenantId = tenantId;
  }

  async readPrices(externalIds: readonly string[]): Promise<ReadonlyMap<string, string>> {
    const rows = await this.#db.query<{ external_id: string; price: string }>(
      'SELECT external_id, price FROM sandbox_price WHERE tenant_id = $1 AND external_id = ANY($2)',
      [this.#tenantId, externalIds],
    );
    return new Map(rows.map((row) => [row.external_id, row.price]));
  }

  async writePrices(prices: ReadonlyMap<string, string>): Promise<void> {
    // In order, so that two writers of the same prices wait for each other instead of locking each other out.
    const ordered = [...prices].sort(([a], [b]) => (a < b ? -1 : 1));
    await this.#db.query(
      `INSERT INTO sandbox_price (tenant_id, external_id, price)
       SELECT $1, new.external_id, new.price FROM unnest($2::text[], $3::text[]) AS new (external_id, price)
       ON CONFLICT (tenant_id, external_id) DO UPDATE SET price = excluded.price`,
      [this.#tenantId, ordered.map(([externalId]) => externalId), ordered.map(([, price]) => price)],
    );
  }

  async countFault(key: string): Promise<number> {
    const rows = await this.#db.query<{ count: number }>(
      `INSERT INTO sandbox_fault (tenant_id, key, count) VALUES ($1, $2, 1)
       ON CONFLICT (tenant_id, key) DO UPDATE SET count = sandbox_fault.count + 1
       RETURNING count`,
      [this.#tenantId, key],
    );
    return rows[0]!.count;
  }
}
