// Rule runs as a client sees them: one whole server with its sandbox, asked by GraphQL over HTTP. Owns the
// documents and the waits; tests name targets by the sandbox's ids, each of which asks for one behaviour.
import { expect } from 'vitest';
import { ask as askShop, gid, READ, write, type VariantNode } from '../../sandbox/support.js';
import { expectInvariants } from '../../store/invariants.js';
import { TestApp, until } from '../../support/app.js';

// Tests read what they asked for; a shape of its own for each would say it twice.
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Answer = any;

const RUN = `id status error paused actor correlationId source metadata progress allowedActions
  createdAt queuedAt startedAt finishedAt startAt autoRevertAt rollback { all onConflict underWay }
  counts { total preview queued applying applied failed rolledBack cancelled }
  preview { count hash }`;
const TARGET = `id externalId status attempts nextAttemptAt errorCode errorMessage appliedAt rolledBackAt failedAt
  history { seq type actor payload createdAt }`;

/** Every mutation that acts on a run, with the type of its input. */
export const MUTATIONS: Readonly<Record<string, string>> = {
  addRuleTargets: 'AddRuleTargetsInput',
  queueRuleRun: 'RuleRunInput',
  cancelRuleRun: 'RuleRunInput',
  pauseRuleRun: 'RuleRunInput',
  resumeRuleRun: 'RuleRunInput',
  retryFailedTargets: 'RetryFailedTargetsInput',
  retryRuleRun: 'RuleRunInput',
  rollBackRuleRun: 'RollBackRuleRunInput',
  reconcileRuleRun: 'RuleRunInput',
};

const eur = (unit_amount: number) => ({ unit_amount, currency: 'EUR' });

/** From 10.00 to 12.00, or to what is given. */
export function targetsFor(ids: readonly string[], after = 1200) {
  return ids.map((externalId) => ({ externalId, before: eur(1000), after: eur(after) }));
}

/** The ids `<prefix>-1` … `<prefix>-n`. */
export function idsOf(prefix: string, count: number): string[] {
  return Array.from({ length: count }, (_, index) => `${prefix}-${index + 1}`);
}

export const ENDED: readonly string[] = ['APPLIED', 'PARTIAL', 'FAILED', 'ROLLED_BACK', 'CANCELLED'];

export class RuleRunWorld {
  private constructor(
    readonly app: TestApp,
    readonly channelId: string,
    private readonly adminUrl: string,
  ) {}

  /** With a key for credentials, so that channels can be saved. */
  static async start(overrides: Readonly<Record<string, string>> = {}): Promise<RuleRunWorld> {
    const app = await TestApp.start({ RUNLEDGER_SECRET_KEY: 'ab'.repeat(32), ...overrides });
    const { data } = await app.request('{ channels { id name config } }');
    const channel = data.channels.find(({ name }: { name: string }) => name === 'sandbox');
    return new RuleRunWorld(app, channel.id, channel.config.endpoint);
  }

  stop(): Promise<void> {
    return this.app.stop();
  }

  async read(query: string, variables: object = {}): Promise<Answer> {
    const { data, errors } = await this.app.request(query, { ...variables });
    expect(errors).toBeUndefined();
    return data;
  }

  /** A mutation and its payload, whatever it says. */
  async ask(name: string, input: object, what?: string): Promise<Answer> {
    const isReport = name === 'reconcileRuleRun';
    const shown =
      what ?? (isReport ? 'report { id trigger totalChecked mismatches repairRunId }' : `ruleRun { ${RUN} }`);
    const type = MUTATIONS[name] ?? `${name[0]!.toUpperCase()}${name.slice(1)}Input`;
    const document = `mutation ($input: ${type}!) {
      ${name}(input: $input) { ${shown} userErrors { code message field details } }
    }`;
    return (await this.read(document, { input }))[name];
  }

  /** A mutation that must be carried out. */
  async do(name: string, input: object, what?: string): Promise<Answer> {
    const payload = await this.ask(name, input, what);
    expect(payload.userErrors).toEqual([]);
    return payload.ruleRun ?? payload.report ?? payload;
  }

  /** A channel of this kind, by whose settings the caller may reach anything; its id. */
  async saveChannel(name: string, kind: string, config: object): Promise<string> {
    return (await this.do('saveChannel', { name, kind, config }, 'channel { id }')).channel.id;
  }

  /** The sandbox's shop once more, under a policy of its own. */
  shop(name: string, policy: object): Promise<string> {
    const { adminUrl: endpoint } = this;
    return this.saveChannel(name, 'shopify', { endpoint, accessToken: 'sandbox', policy });
  }

  async create(ids: readonly string[], input: object = {}): Promise<string> {
    const { channelId } = this;
    return (await this.do('createRuleRun', { channelId, targets: targetsFor(ids), ...input })).id;
  }

  async queue(ids: readonly string[], input: object = {}): Promise<string> {
    const runId = await this.create(ids, input);
    await this.do('queueRuleRun', { runId });
    return runId;
  }

  /** The run when it has come to an end, with every invariant checked. */
  async apply(ids: readonly string[], input: object = {}): Promise<Answer> {
    return this.end(await this.queue(ids, input));
  }

  async run(id: string): Promise<Answer> {
    return (await this.read(`query ($id: ID!) { ruleRun(id: $id) { ${RUN} } }`, { id })).ruleRun;
  }

  async end(id: string): Promise<Answer> {
    const run = await until(
      () => this.run(id),
      ({ status, rollback }) => ENDED.includes(status) && !rollback?.underWay,
    );
    await expectInvariants(this.app.db, id);
    return run;
  }

  untilRun(id: string, fits: (run: Answer) => boolean): Promise<Answer> {
    return until(() => this.run(id), fits);
  }

  /** By external id. */
  async targets(id: string): Promise<Map<string, Answer>> {
    const query = `query ($id: ID!) { ruleRun(id: $id) { targets(first: 1000) { nodes { ${TARGET} } } } }`;
    const { nodes } = (await this.read(query, { id })).ruleRun.targets;
    return new Map(nodes.map((target: Answer) => [target.externalId, target]));
  }

  async target(id: string, externalId: string): Promise<Answer> {
    return (await this.targets(id)).get(externalId);
  }

  async events(id: string): Promise<Answer[]> {
    const query = `query ($id: ID!) { ruleRun(id: $id) {
      events(first: 1000) { nodes { seq type level message payload actor createdAt } } } }`;
    return (await this.read(query, { id })).ruleRun.events.nodes;
  }

  async types(id: string): Promise<string[]> {
    return (await this.events(id)).map(({ type }) => type);
  }

  async health(channelId = this.channelId): Promise<Answer> {
    const query = `query ($id: ID!) { node(id: $id) { ... on Channel {
      health { circuit openUntil consecutive429 availableTokens } } } }`;
    return (await this.read(query, { id: channelId })).node.health;
  }

  /** What the shop shows, as a decimal. */
  async price(externalId: string): Promise<string> {
    const { body } = await askShop(this.#shop, READ, { ids: [gid(externalId)] });
    return (body.data!['nodes'] as VariantNode[])[0]!.price;
  }

  /** Somebody else sets a price in the shop. */
  async changePrice(externalId: string, price: string): Promise<void> {
    expect((await write(this.#shop, externalId, price)).status).toBe(200);
  }

  /** Any call to the shop, past Runledger. */
  callShop(query: string, variables: Record<string, unknown>) {
    return askShop(this.#shop, query, variables);
  }

  get #shop() {
    return { adminUrl: this.adminUrl, accessToken: 'sandbox' } as Parameters<typeof askShop>[0];
  }

  /** Lets whatever waits for its time come due at once, as if the clock had moved. */
  async pass(id: string): Promise<void> {
    await this.do('pauseRuleRun', { runId: id });
    await this.app.db.query(
      'UPDATE rule_target SET next_attempt_at = clock_timestamp() WHERE run_id = $1 AND next_attempt_at IS NOT NULL',
      [id],
    );
    await this.app.db.query('UPDATE rule_run SET next_claim_at = clock_timestamp() WHERE id = $1', [id]);
    await this.do('resumeRuleRun', { runId: id });
  }
}
