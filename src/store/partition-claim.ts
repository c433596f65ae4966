// Claims of pages: a partition is leased for exactly one page, and free again when that is settled. Claim →
// heartbeat → settle or release → expire. Lock order: the run's row, then its partitions'; a page in the middle
// of a partition needs no lock on the run at all.

import { MAX_DELIVERIES } from '../domain/partition.js';
import { FIRST_READING, type Reading } from '../domain/partition-reading.js';
import { EXTERNAL_SOURCE_KIND } from '../domain/pipeline-run.js';
import type { Connection, Database } from './db.js';
import { lockPipelineRun, rollUpPartitions } from './pipeline-roll-up.js';
import { bind, prepared } from './prepared.js';

export interface PageClaim {
  readonly workerId: string;
  readonly runId: string;
  readonly tenantId: string;
  readonly sourceId: string;
  readonly sourceVersion: string;
  /** The partition's row. */
  readonly id: string;
  readonly partitionId: string;
  /** The range, its size and the length of a page, as they were planned. */
  readonly payload: Readonly<Record<string, unknown>>;
  readonly since: Date | null;
  readonly offset: number;
  readonly cursor: string | null;
  readonly reading: Reading;
  readonly duplicated: number;
  /** This delivery's number. */
  readonly attempts: number;
  readonly epoch: number;
  /** Before whatever it reads, to the microsecond, on the clock that all workers share. */
  readonly claimedAt: string;
}

interface ClaimRequest {
  readonly workerId: string;
  readonly leaseMs: number;
}

const ACTIVE = `run.status = 'WORKERS_RUNNING' AND source.kind <> '${EXTERNAL_SOURCE_KIND}'`;
const FREE = `status IN ('pending', 'running') AND lease_owner IS NULL`;

const DUE = `lease_owner IS NULL AND (next_attempt_at IS NULL OR next_attempt_at <= clock_timestamp())`;

const NEXT_PAGE = prepared(
  'next_page',
  `SELECT (extract(epoch FROM min(coalesce(part.next_attempt_at, run.created_at)) - clock_timestamp()) * 1000)::float8 AS ms
   FROM run_metadata run JOIN source ON source.id = run.source_id
     CROSS JOIN LATERAL (SELECT next_attempt_at FROM worker_runs WHERE run_id = run.run_id AND ${FREE}) part
   WHERE ${ACTIVE}`,
);

/** Milliseconds until a page can be claimed; null when no partition waits. */
export async function nextPageDelayMs(db: Database): Promise<number | null> {
  const rows = await db.queryPrepared<{ ms: number | null }>(NEXT_PAGE);
  return rows[0]?.ms ?? null;
}

const FIND_PAGE = prepared(
  'find_page',
  `SELECT run.run_id, part.started > 0 AS started
   FROM run_metadata run JOIN source ON source.id = run.source_id
     CROSS JOIN LATERAL (
       SELECT count(*) FILTER (WHERE lease_owner IS NOT NULL) AS leased,
         count(*) FILTER (WHERE status = 'running' AND ${DUE}) AS started,
         count(*) FILTER (WHERE status = 'pending' AND ${DUE}) AS fresh
       FROM worker_runs WHERE run_id = run.run_id) part
   WHERE ${ACTIVE} AND part.started + part.fresh > 0
   ORDER BY part.leased, run.created_at LIMIT 1`,
);

/** Leases the next page of the run that has the fewest pages under way; null when none is due. */
export async function claimPage(db: Database, request: ClaimRequest): Promise<PageClaim | null> {
  const rows = await db.queryPrepared<{ run_id: string; started: boolean }>(FIND_PAGE);
  const found = rows[0];
  if (!found) return null;
  // A partition that was begun is read on before another is begun: fewer are open at a time.
  if (found.started) return claimStarted(db, found.run_id, request);
  return db.transaction(request.workerId, async (connection) => {
    // The partition's first page moves it, and so its run.
    if ((await lockPipelineRun(connection, found.run_id)) !== 'WORKERS_RUNNING') return null;
    const { rows: claimed } = await connection.query<ClaimedRow>(
      bind(CLAIM_PENDING, [found.run_id, request.workerId, request.leaseMs]),
    );
    return toClaim(claimed[0], request);
  });
}

type ClaimedRow = Omit<PageClaim, 'workerId' | 'reading'> & { readonly reading: Partial<Reading> };

async function claimStarted(db: Database, runId: string, request: ClaimRequest): Promise<PageClaim | null> {
  const rows = await db.queryPrepared<ClaimedRow & Record<string, unknown>>(CLAIM_RUNNING, [
    runId,
    request.workerId,
    request.leaseMs,
  ]);
  return toClaim(rows[0], request);
}

function toClaim(row: ClaimedRow | undefined, { workerId }: ClaimRequest): PageClaim | null {
  return row ? { ...row, reading: { ...FIRST_READING, ...row.reading }, workerId } : null;
}

// A claim that a crash of the database undoes is a lease that nobody has: it need not wait for the disk. The first
// of a partition must, for it writes a line of the ledger, which those who watch the run have read by then.
const UNHURRIED = `, (SELECT set_config('synchronous_commit', 'off', true)) AS unhurried`;

function claimSql(status: 'pending' | 'running'): string {
  return `UPDATE worker_runs AS part
    SET status = 'running', worker_id = $2, attempts = part.attempts + 1, next_attempt_at = NULL,
      claim_epoch = part.claim_epoch + 1, lease_epoch = part.claim_epoch + 1, lease_owner = $2,
      lease_until = clock_timestamp() + $3 * interval '1 millisecond'
    FROM run_metadata run, source, partition_progress progress${status === 'running' ? UNHURRIED : ''}
    WHERE part.id = ANY(ARRAY(
        SELECT id FROM worker_runs WHERE run_id = $1 AND status = '${status}' AND ${DUE}
        ORDER BY started_at, length(partition_id), partition_id LIMIT 1 FOR UPDATE SKIP LOCKED))
      AND run.run_id = part.run_id AND run.status = 'WORKERS_RUNNING' AND source.id = run.source_id
      AND progress.run_id = part.run_id AND progress.partition_id = part.partition_id
    RETURNING part.id, part.run_id AS "runId", part.tenant_id AS "tenantId", source.id AS "sourceId",
      source.updated_at::text AS "sourceVersion", part.partition_id AS "partitionId",
      coalesce(part.work_item_payload, '{}') AS payload, part.page_cursor AS cursor,
      part.reading, clock_timestamp()::text AS "claimedAt",
      part.records_duplicated AS duplicated, part.attempts, part.lease_epoch AS epoch,
      progress.next_offset AS "offset",
      CASE WHEN run.run_type = 'incremental' THEN run.watermark_before END AS since`;
}

const CLAIM_PENDING = prepared('claim_pending_page', claimSql('pending'));
const CLAIM_RUNNING = prepared('claim_running_page', claimSql('running'));

export const HELD = 'id = $1 AND lease_owner = $2 AND lease_epoch = $3';

export function keyOf({ id, workerId, epoch }: PageClaim): unknown[] {
  return [id, workerId, epoch];
}

export const NO_LEASE = 'lease_owner = NULL, lease_until = NULL, lease_epoch = NULL';

/** Keeps the lease of a page that is still being read. */
export async function extendPageLease(db: Database, claim: PageClaim, leaseMs: number): Promise<void> {
  await db.query(
    `UPDATE worker_runs SET lease_until = clock_timestamp() + $4 * interval '1 millisecond' WHERE ${HELD}`,
    [...keyOf(claim), leaseMs],
  );
}

/** Hands the lease back, as on shutdown: a page that was not read costs no delivery. */
export async function releasePage(db: Database, claim: PageClaim): Promise<void> {
  await db.query(`UPDATE worker_runs SET ${NO_LEASE}, attempts = attempts - 1 WHERE ${HELD}`, keyOf(claim));
}

/** Takes back leases that expired, and at once those of `deadWorkerIds`; answers how many. */
export async function recoverPages(db: Database, deadWorkerIds: readonly string[]): Promise<number> {
  // By the runs that are being read, or were lately, which are few: an index on leases would be written with every
  // claim. A page may be claimed while its run is ended.
  const runs = await db.query<{ run_id: string }>(
    `SELECT run_id FROM run_metadata run
     WHERE (status = 'WORKERS_RUNNING' OR finished_at > clock_timestamp() - interval '1 day') AND EXISTS (
       SELECT 1 FROM worker_runs WHERE run_id = run.run_id AND status = 'running' AND ${LOST})
     ORDER BY run_id`,
    [deadWorkerIds],
  );
  let recovered = 0;
  for (const { run_id } of runs) {
    recovered += await db.transaction('system', (connection) =>
      recoverRun(connection, run_id, deadWorkerIds),
    );
  }
  return recovered;
}

const LOST = '(lease_until <= clock_timestamp() OR lease_owner = ANY($1))';

// A lost lease was a delivery: a page that ends its workers must not come back for ever.
async function recoverRun(
  connection: Connection,
  runId: string,
  deadWorkerIds: readonly string[],
): Promise<number> {
  // Nothing of a run that has ended changes any more.
  const mayFail = (await lockPipelineRun(connection, runId)) === 'WORKERS_RUNNING';
  const { rowCount } = await connection.query(
    `UPDATE worker_runs SET ${NO_LEASE},
       status = CASE WHEN $4 AND attempts >= $3 THEN 'failed' ELSE 'running' END,
       error_message = format('the lease of %s expired', lease_owner)
     WHERE id = ANY(ARRAY(
       SELECT id FROM worker_runs WHERE run_id = $2 AND status = 'running' AND ${LOST}
       ORDER BY id FOR UPDATE SKIP LOCKED))`,
    [deadWorkerIds, runId, MAX_DELIVERIES, mayFail],
  );
  await rollUpPartitions(connection, runId);
  return rowCount ?? 0;
}
