// How far each endpoint has come in each run's ledger, and whose turn it is to send what comes next. A run with
// lines beyond its cursor is due; whoever claims it sends one batch and settles under the claim's number, so that
// a run's lines go out in their order, one request at a time, and a deliverer that was too slow changes nothing.
// The cursor moves after the receiver has answered: what is cut short in between is sent again, never left out.

import type { RunKind } from '../domain/run.js';
import type { Settings } from '../domain/settings.js';
import { toLikePattern, wantsRun, type WebhookChoice } from '../domain/webhook-endpoint.js';
import type { Database } from './db.js';
import { RUN_EVENT_COLUMNS, type RunEventRow } from './ledger.js';
import { openSettings, type SealedRow } from './sealed-settings.js';
import type { SecretBox } from './secret-box.js';

export interface ClaimedRun {
  readonly id: string;
  readonly epoch: number;
  readonly runId: string;
  readonly kind: RunKind;
  readonly projectId: string;
  readonly correlationId: string;
  /** The ledger begins after it: 0 for a run that is whole. */
  readonly prunedSeq: number;
  readonly deliveredSeq: number;
  /** The delivery ends there at the latest, at whatever try. */
  readonly sendingSeq: number;
  /** Of this run, in a row. */
  readonly failures: number;
  readonly endpoint: ClaimedEndpoint;
}

export interface ClaimedEndpoint extends WebhookChoice {
  readonly id: string;
  readonly name: string;
  readonly tenantId: string;
  /** In a row, whatever the run. */
  readonly failures: number;
  readonly row: SealedRow;
}

/** Lines that were pruned before the endpoint was sent them, from the first to the last. */
export interface LedgerGap {
  readonly fromSeq: number;
  readonly toSeq: number;
}

/** What one claim may send: some lines, and where the cursor is once they were taken. */
export interface WebhookBatch {
  readonly gap: LedgerGap | null;
  readonly lines: readonly RunEventRow[];
  readonly coveredSeq: number;
}

/** Longer than any request takes. */
const LEASE = '30 seconds';
/** Lines that are looked through at once; few of them may be wanted. */
const MAX_LOOKED_THROUGH = 10_000;
const MAX_BATCH_BYTES = 256 * 1024;

/** Whose bells matter. */
export async function listWebhookTenants(db: Database): Promise<string[]> {
  const rows = await db.query<{ tenantId: string }>(
    'SELECT DISTINCT tenant_id AS "tenantId" FROM webhook_endpoint',
  );
  return rows.map(({ tenantId }) => tenantId);
}

/** Marks as due what has news, of these runs or, with null, of all. */
export async function noticeNews(db: Database, runIds: readonly string[] | null): Promise<void> {
  const values = runIds === null ? [] : [runIds];
  const chosen = (column: string) => (runIds === null ? 'true' : `${column} = ANY($1::uuid[])`);
  await db.query(
    `INSERT INTO webhook_cursor (endpoint_id, run_id, next_attempt_at, waiting_since)
     SELECT endpoint.id, run.id, clock_timestamp(), clock_timestamp()
     FROM webhook_endpoint endpoint JOIN webhook_run run
       ON run.tenant_id = endpoint.tenant_id AND webhook_wants(endpoint, run.kind, run.project_id)
     WHERE run.finished_at IS NULL AND ${chosen('run.id')} AND NOT EXISTS (
       SELECT FROM webhook_cursor WHERE run_id = run.id AND endpoint_id = endpoint.id)
     ON CONFLICT (run_id, endpoint_id) DO NOTHING`,
    values,
  );
  await db.query(
    `UPDATE webhook_cursor SET next_attempt_at = clock_timestamp(), waiting_since = clock_timestamp()
     FROM webhook_run run
     WHERE run.id = run_id AND run.last_seq > delivered_seq AND next_attempt_at IS NULL AND ${chosen('run_id')}`,
    values,
  );
}

/** Whether anything could be claimed now. */
export async function hasDueRuns(db: Database): Promise<boolean> {
  const rows = await db.query(
    `SELECT FROM webhook_endpoint endpoint JOIN webhook_cursor cursor ON cursor.endpoint_id = endpoint.id
     WHERE endpoint.enabled AND cursor.next_attempt_at <= clock_timestamp()
       AND (cursor.lease_until IS NULL OR cursor.lease_until <= clock_timestamp())
       AND (endpoint.next_attempt_at IS NULL OR endpoint.next_attempt_at <= clock_timestamp())
       AND EXISTS (SELECT FROM webhook_run run WHERE run.id = cursor.run_id) LIMIT 1`,
  );
  return rows.length > 0;
}

export interface ClaimRequest {
  /** Endpoints whose last try failed get one run at a time, and a share of the deliverers of their own. */
  readonly failing: boolean;
  readonly limit: number;
  /** Runs of one endpoint that are sent at once. */
  readonly perEndpoint: number;
  /** How many of each endpoint's runs this process is sending. */
  readonly underWay: ReadonlyMap<string, number>;
}

/** Runs that are due, longest wait first, each of them this caller's until its lease ends. */
export async function claimRuns(db: Database, request: ClaimRequest): Promise<ClaimedRun[]> {
  const { failing, limit, perEndpoint, underWay } = request;
  const rows = await db.query<ClaimedRow>(
    `UPDATE webhook_cursor cursor
     SET lease_until = clock_timestamp() + interval '${LEASE}', lease_epoch = lease_epoch + 1,
       delivered_seq = coalesce(replay_after, delivered_seq), replay_after = NULL,
       sending_seq = CASE WHEN replay_after IS NULL THEN coalesce(sending_seq, run.last_seq) ELSE run.last_seq END
     FROM webhook_endpoint endpoint, webhook_run run
     WHERE endpoint.id = cursor.endpoint_id AND run.id = cursor.run_id AND cursor.id = ANY(ARRAY(
       SELECT due.id FROM webhook_endpoint ready
       LEFT JOIN unnest($1::uuid[], $2::int[]) AS busy (id, count) ON busy.id = ready.id
       CROSS JOIN LATERAL (
         SELECT id, next_attempt_at FROM webhook_cursor
         WHERE endpoint_id = ready.id AND next_attempt_at <= clock_timestamp()
           AND (lease_until IS NULL OR lease_until <= clock_timestamp())
           AND EXISTS (SELECT FROM webhook_run WHERE webhook_run.id = run_id)
         ORDER BY next_attempt_at LIMIT greatest($3 - coalesce(busy.count, 0), 0) FOR UPDATE SKIP LOCKED
       ) due
       WHERE ready.enabled AND (ready.failures > 0) = $4
         AND (ready.next_attempt_at IS NULL OR ready.next_attempt_at <= clock_timestamp())
       ORDER BY due.next_attempt_at LIMIT ${limit}))
     RETURNING cursor.id::text, cursor.lease_epoch AS epoch, run.id AS "runId", run.kind, run.project_id AS "projectId",
       run.correlation_id AS "correlationId", run.pruned_seq AS "prunedSeq",
       cursor.delivered_seq AS "deliveredSeq", cursor.sending_seq AS "sendingSeq", cursor.failures,
       ${ENDPOINT_FACTS}`,
    [[...underWay.keys()], [...underWay.values()], failing ? 1 : perEndpoint, failing],
  );
  return rows.map(({ endpoint, ...run }) => ({ ...run, endpoint: toEndpoint(endpoint) }));
}

export const ENDPOINT_FACTS = `json_build_object('id', endpoint.id, 'name', endpoint.name, 'tenantId', endpoint.tenant_id,
  'failures', endpoint.failures, 'kinds', endpoint.kinds, 'eventTypes', endpoint.event_types,
  'projectId', endpoint.project_id, 'batchSize', endpoint.batch_size, 'deadAfterHours', endpoint.dead_after_hours,
  'deadAfterFailures', endpoint.dead_after_failures, 'config', endpoint.config, 'secrets', endpoint.secrets,
  'secretsKeyId', endpoint.secrets_key_id) AS endpoint`;

export type EndpointFacts = Omit<ClaimedEndpoint, 'row'> & Omit<SealedRow, 'id'>;
type ClaimedRow = Omit<ClaimedRun, 'endpoint'> & { readonly endpoint: EndpointFacts };

export function toEndpoint({ config, secrets, secretsKeyId, ...endpoint }: EndpointFacts): ClaimedEndpoint {
  return { ...endpoint, row: { id: endpoint.id, config, secrets, secretsKeyId } };
}

/** The endpoint's settings, with their secrets. */
export function openEndpointSettings(box: SecretBox, { row }: ClaimedEndpoint): Settings {
  return openSettings(box, 'webhook_endpoint', row);
}

/** What comes next of what the endpoint wants now; the same at every try, as long as it wants the same. */
export async function readBatch(db: Database, claimed: ClaimedRun): Promise<WebhookBatch> {
  const { endpoint, runId, deliveredSeq, prunedSeq, sendingSeq } = claimed;
  if (!wantsRun(endpoint, claimed)) return { gap: null, lines: [], coveredSeq: sendingSeq };
  // An endpoint that was off does not hold back retention: it is told what it will not be sent any more.
  const gap = prunedSeq > deliveredSeq ? { fromSeq: deliveredSeq + 1, toSeq: prunedSeq } : null;
  const after = Math.max(deliveredSeq, prunedSeq);
  const upTo = Math.max(after, Math.min(sendingSeq, after + MAX_LOOKED_THROUGH));
  const lines = await db.query<RunEventRow>(
    `SELECT ${RUN_EVENT_COLUMNS} FROM run_event
     WHERE run_id = $1 AND seq > $2 AND seq <= $3 AND type LIKE ANY($4::text[]) ORDER BY seq LIMIT $5`,
    [runId, after, upTo, endpoint.eventTypes.map(toLikePattern), endpoint.batchSize],
  );
  const fitting = countFitting(lines);
  const isAll = fitting === lines.length && lines.length < endpoint.batchSize;
  return { gap, lines: lines.slice(0, fitting), coveredSeq: isAll ? upTo : lines[fitting - 1]!.seq };
}

/** As many as one request holds, and always one. */
function countFitting(lines: readonly RunEventRow[]): number {
  let bytes = 0;
  const tooMuch = lines.findIndex(({ message, payload }, index) => {
    bytes += message.length + JSON.stringify(payload).length;
    return index > 0 && bytes > MAX_BATCH_BYTES;
  });
  return tooMuch === -1 ? lines.length : tooMuch;
}
