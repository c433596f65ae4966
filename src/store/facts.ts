// Facts of the whole database for those who operate it, over all tenants: how much waits, how old it is, what
// failed, who works. Every read is bounded by what is under way now, not by history; so times are compared with
// the statement's, since no index is read by a clock that moves on while it runs. Called by the metrics.

import { EXTERNAL_SOURCE_KIND } from '../domain/pipeline-run.js';
import { RUN_KINDS } from '../domain/run.js';
import type { Database } from './db.js';
import { HORIZON_HOLDERS } from './horizon.js';
import { stuckSql } from './partition.js';
import { TO_SET_BACK } from './rule-run-row.js';
import { outcomesWithin } from './success-rate.js';

/** Comparisons with a channel are work of their own. */
export const QUEUE_KINDS = [...RUN_KINDS, 'RECONCILIATION'] as const;

export interface QueueFacts {
  readonly kind: (typeof QUEUE_KINDS)[number];
  /**
   * Units of work that wait: targets to apply or to set back, partitions, pipeline runs to plan or to consolidate, ops
   * runs, reconciliations.
   */
  readonly depth: number;
  /** Units of work that somebody has in hand. */
  readonly leased: number;
  /** Age of the oldest run that has work waiting; 0 when none has. */
  readonly oldestSeconds: number;
}

export interface Facts {
  readonly queues: readonly QueueFacts[];
  readonly deadLetters: number;
  /** Targets that came to an end in runs that are under way or ended within the window. */
  readonly recent: { readonly applied: number; readonly failed: number };
  readonly channelsByCircuit: Readonly<Record<string, number>>;
  readonly workersByState: Readonly<Record<string, number>>;
  readonly partitionsByStatus: Readonly<Record<string, number>>;
  /** Partitions to be read that have made no progress for long. */
  readonly stuckPartitions: number;
  /** Of the partitions under way, records read so far. */
  readonly recordsProcessed: number;
  /** An old transaction holds back vacuum, and with it every claim. */
  readonly oldestTransactionSeconds: number;
  /** How many transactions ago the oldest began whose leftovers vacuum must keep. */
  readonly oldestXminAge: number;
  readonly firingAlertsBySeverity: Readonly<Record<string, number>>;
  /** What sinks are still to be told. */
  readonly waitingNotices: number;
  /** How full PostgreSQL's queue of notifications is, 0..1: it fills when some listener does not read. */
  readonly notificationQueueUsage: number;
  /** Endpoints for webhooks: sound, failing, off. */
  readonly webhooksByState: Readonly<Record<string, number>>;
  /** As of the last vacuum or analyze. */
  readonly ledgerLines: number;
}

/** The window of success rates, for the gauge and, unless a tenant has set another, for alerts. */
const SUCCESS_WINDOW_SECONDS = 3600;

/** A worker that was not heard of for so long is not counted. */
const SILENT_AFTER = '30 seconds';

const STUCK_AFTER_MS = 600_000;

/** Whoever asked has given up by then; a read that went on would hold its connection. */
const LONGEST_READ_MS = 4_000;

export function readFacts(
  db: Database,
  { stuckMs = STUCK_AFTER_MS, longestMs = LONGEST_READ_MS } = {},
): Promise<Facts> {
  return db.transaction('metrics', async (connection) => {
    await connection.query(`SET LOCAL statement_timeout = ${longestMs}`);
    const queues = await connection.query<QueueFacts>(QUEUES);
    const rest = await connection.query<Omit<Facts, 'queues'>>(REST, [SUCCESS_WINDOW_SECONDS, stuckMs]);
    return { queues: queues.rows, ...rest.rows[0]! };
  });
}

const QUEUES = `
  SELECT kind, depth::float8 AS depth, leased::float8 AS leased,
    coalesce(extract(epoch FROM clock_timestamp() - oldest), 0)::float8 AS "oldestSeconds"
  FROM (
    SELECT 'RULE' AS kind, coalesce(sum(queued_count + to_set_back), 0) AS depth,
      coalesce(sum(applying_count), 0) AS leased,
      least(min(queued_at) FILTER (WHERE queued_count > 0), min(rollback_asked_at) FILTER (WHERE to_set_back > 0)) AS oldest
    FROM (
      SELECT queued_count, applying_count, queued_at, rollback_asked_at, ${TO_SET_BACK} AS to_set_back
      FROM rule_run run WHERE status IN ('QUEUED', 'APPLYING') OR rolling_back
    ) run
    UNION ALL
    SELECT 'RECONCILIATION', count(*) FILTER (WHERE lease_owner IS NULL), count(*) FILTER (WHERE lease_owner IS NOT NULL),
      min(created_at) FILTER (WHERE lease_owner IS NULL)
    FROM reconciliation
    UNION ALL
    SELECT 'PIPELINE', count(*) FILTER (WHERE waits), count(*) FILTER (WHERE leased), min(created_at) FILTER (WHERE waits)
    FROM (
      SELECT run.created_at, part.lease_owner IS NOT NULL AS leased, part.status = 'pending'
        -- Between two pages nobody has it; whether an outside worker has, only that one knows.
        OR (part.status = 'running' AND part.lease_owner IS NULL AND source.kind <> '${EXTERNAL_SOURCE_KIND}') AS waits
      FROM run_metadata run JOIN source ON source.id = run.source_id JOIN worker_runs part USING (run_id)
      WHERE run.status IN ('CREATED', 'WORKERS_RUNNING', 'CONSOLIDATING')
      UNION ALL
      SELECT run.created_at, lease_owner IS NOT NULL, lease_owner IS NULL
      FROM run_metadata run JOIN source ON source.id = run.source_id
      WHERE run.status IN ('CREATED', 'CONSOLIDATING') AND source.kind <> '${EXTERNAL_SOURCE_KIND}'
    ) unit
    UNION ALL
    SELECT 'OPS', (SELECT count(*) FROM ops_run WHERE status = 'queued'),
      (SELECT count(*) FROM ops_run WHERE status IN ('claimed', 'running')),
      (SELECT min(queued_at) FROM ops_run WHERE status = 'queued')
  ) AS queue`;

const REST = `
  WITH open_part AS (
    SELECT part.status, part.records_processed, ${stuckSql('$2')} AS stuck
    FROM run_metadata run JOIN worker_runs part USING (run_id)
      LEFT JOIN partition_progress progress USING (run_id, partition_id)
    WHERE run.status IN ('CREATED', 'WORKERS_RUNNING', 'CONSOLIDATING')
  )
  SELECT
    (SELECT coalesce(sum(failed_count), 0)::float8 FROM rule_run
      WHERE failed_count > 0 AND pruned_at IS NULL) AS "deadLetters",
    (SELECT jsonb_build_object('applied', coalesce(sum(applied), 0), 'failed', coalesce(sum(failed), 0))
      FROM (${outcomesWithin('$1')}) outcome) AS recent,
    -- Whether the wait is over, not the state, which only the next batch changes.
    (SELECT coalesce(jsonb_object_agg(circuit, n), '{}') FROM (
      SELECT CASE WHEN circuit = 'OPEN' AND (circuit_open_until > statement_timestamp()) IS NOT TRUE THEN 'HALF_OPEN'
        ELSE circuit END AS circuit, count(*) AS n
      FROM channel GROUP BY 1) c) AS "channelsByCircuit",
    (SELECT coalesce(jsonb_object_agg(state, n), '{}') FROM (
      SELECT state, count(*) AS n FROM worker
      WHERE heartbeat_at > clock_timestamp() - interval '${SILENT_AFTER}' GROUP BY state) w) AS "workersByState",
    (SELECT coalesce(jsonb_object_agg(status, n), '{}')
      FROM (SELECT status, count(*) AS n FROM open_part GROUP BY status) p) AS "partitionsByStatus",
    (SELECT count(*)::float8 FROM open_part WHERE stuck) AS "stuckPartitions",
    (SELECT coalesce(sum(records_processed), 0)::float8 FROM open_part) AS "recordsProcessed",
    (SELECT coalesce(extract(epoch FROM clock_timestamp() - min(xact_start)), 0)::float8 FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid()) AS "oldestTransactionSeconds",
    (SELECT coalesce(max(age), 0)::float8 FROM (${HORIZON_HOLDERS}) holder) AS "oldestXminAge",
    (SELECT coalesce(jsonb_object_agg(severity, n), '{}') FROM (
      SELECT severity, count(*) AS n FROM alert WHERE resolved_at IS NULL GROUP BY severity) a) AS "firingAlertsBySeverity",
    (SELECT count(*)::float8 FROM alert_notice WHERE next_attempt_at IS NOT NULL) AS "waitingNotices",
    (SELECT coalesce(jsonb_object_agg(state, n), '{}') FROM (
      SELECT CASE WHEN NOT enabled THEN 'off' WHEN failures > 0 THEN 'failing' ELSE 'sound' END AS state, count(*) AS n
      FROM webhook_endpoint GROUP BY 1) w) AS "webhooksByState",
    pg_notification_queue_usage() AS "notificationQueueUsage",
    (SELECT greatest(reltuples, 0)::float8 FROM pg_class WHERE oid = 'run_event'::regclass) AS "ledgerLines"`;
