// Rows for tests: two tenants with a channel and a source each, rule runs through the store's own verbs, and
// a row of any guarded machine in any state, walked there by legal steps.
import { randomUUID } from 'node:crypto';
import { listTransitions, type Machine, type Transition } from '../../src/domain/machine.js';
import type { TargetInput } from '../../src/domain/rule-target.js';
import type { Role, Viewer } from '../../src/domain/viewer.js';
import { ensureTenant } from '../../src/store/api-key.js';
import { listChannels, registerChannel } from '../../src/store/channel.js';
import type { Database } from '../../src/store/db.js';
import type { RuleRunRow } from '../../src/store/rule-run-row.js';
import { savePricingRule, type PricingRuleInput } from '../../src/store/pricing-rule.js';
import { createRuleRun, queueRuleRun, type NewRuleRun } from '../../src/store/rule-run.js';
import { listSources, registerSource } from '../../src/store/source.js';
import { fireEvent } from '../../src/store/transition.js';

export interface Tenant {
  readonly viewer: Viewer;
  readonly channelId: string;
  readonly sourceId: string;
}

export interface World {
  /** Tenant `default`. */
  readonly home: Tenant;
  /** Another tenant, with a channel and a source of the same names. */
  readonly other: Tenant;
}

export function viewerOf(tenantId: string, role: Role = 'ADMIN'): Viewer {
  return { tenantId, role, actor: `key:${tenantId}`, keyId: null };
}

export async function seedWorld(db: Database): Promise<World> {
  return { home: await seedTenant(db, 'default'), other: await seedTenant(db, 'other') };
}

async function seedTenant(db: Database, tenantId: string): Promise<Tenant> {
  const viewer = viewerOf(tenantId);
  await ensureTenant(db, tenantId);
  await registerChannel(db, { tenantId, name: 'shop', kind: 'shopify', config: {} });
  await registerSource(db, { tenantId, name: 'feed', kind: 'http', config: {} });
  const [channel] = await listChannels(db, viewer);
  const [source] = await listSources(db, viewer);
  return { viewer, channelId: channel!.id, sourceId: source!.id };
}

/** A new rule, enabled unless told otherwise; its id. */
export async function makePricingRule(
  db: Database,
  tenant: Tenant,
  definition: object,
  overrides: Partial<PricingRuleInput> = {},
): Promise<string> {
  const input = {
    id: null,
    projectId: 'default',
    name: 'rule',
    enabled: true,
    priority: 0,
    expectedVersion: null,
  };
  return (await savePricingRule(db, tenant.viewer, { ...input, definition, ...overrides })).id;
}

/** Valid targets with the external ids `<prefix>-1` … `<prefix>-n`. */
export function targetsOf(count: number, prefix = 'sku'): TargetInput[] {
  return Array.from({ length: count }, (_, index) => ({
    externalId: `${prefix}-${index + 1}`,
    before: { unit_amount: 1000 + index, currency: 'EUR' },
    after: { unit_amount: 1500 + index, currency: 'EUR' },
  }));
}

export function newRuleRun(tenant: Tenant, overrides: Partial<NewRuleRun> = {}): NewRuleRun {
  return {
    projectId: 'default',
    channelId: tenant.channelId,
    targets: targetsOf(3),
    metadata: {},
    correlationId: null,
    idempotencyKey: null,
    ...overrides,
  };
}

export function makeRuleRun(
  db: Database,
  tenant: Tenant,
  overrides: Partial<NewRuleRun> = {},
): Promise<RuleRunRow> {
  return createRuleRun(db, tenant.viewer, newRuleRun(tenant, overrides));
}

export async function makeQueuedRun(
  db: Database,
  tenant: Tenant,
  overrides: Partial<NewRuleRun> = {},
): Promise<RuleRunRow> {
  const { id } = await makeRuleRun(db, tenant, overrides);
  return queueRuleRun(db, tenant.viewer, { runId: id, idempotencyKey: null });
}

/** A run whose targets have all failed, the first half of them as INVALID, the rest as AUTH; answers its id. */
export async function makeFailedRun(
  db: Database,
  tenant: Tenant,
  overrides: Partial<NewRuleRun> = {},
): Promise<string> {
  const { id, totalCount } = await makeQueuedRun(db, tenant, overrides);
  await db.transaction('worker-1', async (connection) => {
    await connection.query(`UPDATE rule_run SET status = 'APPLYING' WHERE id = $1`, [id]);
    await connection.query(
      `UPDATE rule_target SET status = 'APPLYING', attempts = 1, lease_owner = 'worker-1', lease_epoch = 1,
         lease_until = clock_timestamp() + interval '1 minute' WHERE run_id = $1`,
      [id],
    );
    await connection.query(
      `UPDATE rule_target SET status = 'FAILED', error_message = 'no', error_code =
         CASE WHEN id < (SELECT min(id) + $2 / 2 FROM rule_target WHERE run_id = $1) THEN 'INVALID' ELSE 'AUTH' END
       WHERE run_id = $1`,
      [id, totalCount],
    );
    await connection.query(`UPDATE rule_run SET status = 'FAILED' WHERE id = $1`, [id]);
  });
  return id;
}

/** A row that a machine governs, and the run whose ledger tells of it: itself, or the run it belongs to. */
export interface MachineRow {
  readonly machine: Machine;
  readonly tenantId: string;
  readonly id: string;
  readonly runId: string;
}

/** A row of `machine` in `state`. */
export async function makeRowIn(
  db: Database,
  tenant: Tenant,
  machine: Machine,
  state: string,
): Promise<MachineRow> {
  const row = await makeRow(db, tenant, machine);
  for (const step of pathTo(machine, state)) await fire(db, row, step.event);
  return row;
}

export async function fire(db: Database, row: MachineRow, event: string, actor = 'test'): Promise<string> {
  const { machine, tenantId, id } = row;
  const set = neededColumns(machine, machine.events[event]!.to);
  return db.transaction(actor, (connection) => fireEvent(connection, { machine, tenantId, id, event, set }));
}

/** What a CHECK asks for in a state beside the status itself. */
export function neededColumns(machine: Machine, to: string): Record<string, unknown> {
  if (machine.name === 'rule_target' && to === 'APPLYING') {
    return {
      lease_owner: 'worker-1',
      lease_until: new Date(Date.now() + 60_000),
      lease_epoch: 1,
      attempts: 1,
    };
  }
  return machine.name === 'ops_run' && to === 'claimed' ? { claimed_by: 'worker-1' } : {};
}

/** The shortest way from the initial state. */
export function pathTo(machine: Machine, state: string): Transition[] {
  const ways = new Map<string, Transition[]>([[machine.initial, []]]);
  // A Map visits what is added while it is iterated.
  for (const [reached, way] of ways) {
    for (const step of listTransitions(machine)) {
      if (step.from === reached && !ways.has(step.to)) ways.set(step.to, [...way, step]);
    }
  }
  const way = ways.get(state);
  if (!way) throw new Error(`${machine.name}: ${state} cannot be reached`);
  return way;
}

/** A new row, in the machine's initial state. */
export async function makeRow(db: Database, tenant: Tenant, machine: Machine): Promise<MachineRow> {
  const { tenantId } = tenant.viewer;
  const insert = INSERTS[machine.name];
  if (!insert) throw new Error(`no rows are made for machine ${machine.name}`);
  const { id, runId } = await insert(db, tenant);
  return { machine, tenantId, id, runId };
}

type Insert = (db: Database, tenant: Tenant) => Promise<{ readonly id: string; readonly runId: string }>;

const INSERTS: Readonly<Record<string, Insert>> = {
  rule_run: async (db, tenant) => {
    const { id } = await makeRuleRun(db, tenant, { targets: [] });
    return { id, runId: id };
  },
  rule_target: async (db, tenant) => {
    const { id: runId } = await makeRuleRun(db, tenant, { targets: targetsOf(1) });
    const [row] = await db.query<{ id: string }>('SELECT id::text FROM rule_target WHERE run_id = $1', [
      runId,
    ]);
    return { id: row!.id, runId };
  },
  pipeline_run: async (db, tenant) => {
    const runId = await insertPipelineRun(db, tenant);
    return { id: runId, runId };
  },
  partition: async (db, tenant) => {
    const runId = await insertPipelineRun(db, tenant);
    const [row] = await db.query<{ id: string }>(
      'INSERT INTO worker_runs (run_id, tenant_id, partition_id) VALUES ($1, $2, $3) RETURNING id',
      [runId, tenant.viewer.tenantId, 'partition-0'],
    );
    return { id: row!.id, runId };
  },
  ops_run: async (db, tenant) => {
    const [row] = await db.query<{ id: string }>(
      `INSERT INTO ops_run (tenant_id, project_id, env, idempotency_key)
       VALUES ($1, 'proj', 'staging', $2) RETURNING id`,
      [tenant.viewer.tenantId, randomUUID()],
    );
    return { id: row!.id, runId: row!.id };
  },
};

async function insertPipelineRun(db: Database, tenant: Tenant): Promise<string> {
  const [row] = await db.query<{ run_id: string }>(
    `INSERT INTO run_metadata (tenant_id, source_id, run_type, expected_workers)
     VALUES ($1, $2, 'full', 1) RETURNING run_id`,
    [tenant.viewer.tenantId, tenant.sourceId],
  );
  return row!.run_id;
}
