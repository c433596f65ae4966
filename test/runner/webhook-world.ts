// What the tests of webhooks share: endpoints at a real receiver, runs that get lines, deliverers with short delays.
import type { RetryPolicy } from '../../src/domain/retry-policy.js';
import { RUN_KINDS } from '../../src/domain/run.js';
import { DEFAULT_WEBHOOK_FIGURES, WEBHOOK_RETRY } from '../../src/domain/webhook-endpoint.js';
import { WEBHOOK_KINDS } from '../../src/connectors/webhook-endpoint.js';
import { BellListener } from '../../src/events/listener.js';
import { WebhookDelivery } from '../../src/runner/webhook-delivery.js';
import { WebhookSender, type WebhookSenderOptions } from '../../src/runner/webhook-sender.js';
import { appendRunLines } from '../../src/store/ledger.js';
import { cancelRuleRun } from '../../src/store/rule-run-control.js';
import { SecretBox } from '../../src/store/secret-box.js';
import {
  listWebhookEndpoints,
  saveWebhookEndpoint,
  type WebhookEndpointInput,
  type WebhookEndpointRow,
} from '../../src/store/webhook-endpoint.js';
import { silentLog } from '../events/support.js';
import { createTestDatabase, type TestDatabase } from '../support/database.js';
import { makeRuleRun, seedWorld, type Tenant, type World } from '../support/fixtures.js';
import { Receiver, type Received } from '../support/receiver.js';
import { KeptLog } from './support.js';

export const SECRET = 'a-secret-of-some-length';

/** Delays that a test waits for, and such that it says when they are over. */
const SHORT_RETRY: RetryPolicy = { ...WEBHOOK_RETRY, baseMs: 40, maxMs: 200, throttleBaseMs: 40 };
const LONG_RETRY: RetryPolicy = { ...WEBHOOK_RETRY, baseMs: 600_000 };

export class WebhookWorld {
  /** What a server needs to open the secrets that are saved here. */
  readonly secretKey = SecretBox.generateKey();
  readonly secrets = new SecretBox([this.secretKey]);
  readonly log = new KeptLog();
  readonly #deliveries: WebhookDelivery[] = [];
  readonly #listeners: BellListener[] = [];

  static async open(): Promise<WebhookWorld> {
    const database = await createTestDatabase();
    return new WebhookWorld(database, await seedWorld(database.db), await Receiver.start());
  }

  private constructor(
    readonly database: TestDatabase,
    readonly world: World,
    readonly receiver: Receiver,
  ) {}

  get db() {
    return this.database.db;
  }

  async close(): Promise<void> {
    for (const part of [...this.#listeners, ...this.#deliveries]) await part.stop();
    await this.receiver.stop();
    await this.database.drop();
  }

  query(sql: string, values: unknown[] = []) {
    return this.db.query<Record<string, unknown>>(sql, values);
  }

  /** An endpoint at a path of the receiver. */
  save(
    path: string,
    overrides: Partial<WebhookEndpointInput> = {},
    tenant: Tenant = this.world.home,
  ): Promise<WebhookEndpointRow> {
    return saveWebhookEndpoint(this.db, this.secrets, tenant.viewer, WEBHOOK_KINDS, {
      ...DEFAULT_WEBHOOK_FIGURES,
      id: null,
      name: path,
      url: this.receiver.url(path),
      secret: SECRET,
      kinds: RUN_KINDS,
      projectId: null,
      enabled: null,
      ...overrides,
    });
  }

  async endpoint(name: string): Promise<WebhookEndpointRow> {
    const all = await listWebhookEndpoints(this.db, this.world.home.viewer);
    return all.find((each) => each.name === name)!;
  }

  /** One more deliverer, as another process would have it. */
  deliverer(options: Partial<WebhookSenderOptions> = {}, graceMs = 50): WebhookDelivery {
    const { db, secrets, log } = this;
    const sender = new WebhookSender({ db, secrets, log, retry: LONG_RETRY, ...options });
    const delivery = new WebhookDelivery({ db, sender, log, timing: { pollMs: 20, gatherMs: 5, graceMs } });
    this.#deliveries.push(delivery);
    return delivery;
  }

  /** A deliverer that runs, and hears the bells of the database. */
  async startDeliverer(options: Partial<WebhookSenderOptions> = {}): Promise<void> {
    const listener = await BellListener.start({ url: this.database.url, log: silentLog });
    const delivery = this.deliverer({ retry: SHORT_RETRY, ...options });
    listener.onBell((head) => delivery.hear(head));
    listener.onWebhookChange((tenantId) => delivery.hearEndpoint(tenantId));
    this.#listeners.push(listener);
    delivery.start();
  }

  /** All that is due, by a deliverer of its own. */
  deliver(options: Partial<WebhookSenderOptions> = {}): Promise<void> {
    return this.deliverer(options).runOnce();
  }

  /** Time passes: leases and waits are over. */
  async makeDue(): Promise<void> {
    await this.query(
      'UPDATE webhook_cursor SET next_attempt_at = now(), lease_until = NULL WHERE next_attempt_at IS NOT NULL',
    );
    await this.query('UPDATE webhook_endpoint SET next_attempt_at = now() WHERE next_attempt_at IS NOT NULL');
  }

  /** A rule run of two lines: created, and its targets added. */
  async makeRun(tenant: Tenant = this.world.home): Promise<string> {
    return (await makeRuleRun(this.db, tenant)).id;
  }

  async cancel(runId: string): Promise<void> {
    await cancelRuleRun(this.db, this.world.home.viewer, { runId, idempotencyKey: null });
  }

  /** Lines of the type `log`, the n-th with the message n. */
  write(runId: string, count: number, type = 'log'): Promise<void> {
    const lines = Array.from({ length: count }, (_, index) => ({
      type,
      level: 'INFO' as const,
      message: String(index + 1),
      payload: {},
    }));
    return this.db.transaction('test', (connection) => appendRunLines(connection, 'RULE', runId, lines));
  }

  async lastSeq(runId: string): Promise<number> {
    const [row] = await this.query('SELECT last_seq FROM rule_run WHERE id = $1', [runId]);
    return row!['last_seq'] as number;
  }

  /** The seqs that a path was sent of a run, in the order in which they came. */
  seqs(path: string, runId: string): number[] {
    return seqsOf(this.receiver.at(path), runId);
  }
}

export function seqsOf(received: readonly Received[], runId: string): number[] {
  return received
    .filter(({ body }) => body.run?.id === runId)
    .flatMap(({ body }) => (body.events as { seq: number }[]).map(({ seq }) => seq));
}

/** 1 … n. */
export function upTo(count: number, from = 1): number[] {
  return Array.from({ length: count - from + 1 }, (_, index) => from + index);
}
