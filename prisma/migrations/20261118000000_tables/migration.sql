-- The tables, as prisma/schema.prisma has them.

CREATE TYPE "role" AS ENUM ('VIEWER', 'OPERATOR', 'ADMIN', 'WORKER');

CREATE TYPE "run_kind" AS ENUM ('RULE', 'PIPELINE', 'OPS');

CREATE TYPE "event_level" AS ENUM ('DEBUG', 'INFO', 'WARN', 'ERROR');

CREATE TYPE "circuit_state" AS ENUM ('CLOSED', 'OPEN', 'HALF_OPEN');

CREATE TABLE "tenant" (
    "id" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "max_targets" INTEGER NOT NULL DEFAULT 1000000,
    "max_change_percent" DOUBLE PRECISION NOT NULL DEFAULT 5000,
    "created_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "tenant_pkey" PRIMARY KEY ("id")
);

CREATE TABLE "api_key" (
    "id" UUID NOT NULL,
    "tenant_id" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "role" "role" NOT NULL,
    "prefix" TEXT NOT NULL,
    "hash" TEXT NOT NULL,
    "created_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "last_used_at" TIMESTAMPTZ(6),
    "revoked_at" TIMESTAMPTZ(6),

    CONSTRAINT "api_key_pkey" PRIMARY KEY ("id")
);

CREATE TABLE "idempotency_key" (
    "tenant_id" TEXT NOT NULL,
    "operation" TEXT NOT NULL,
    "key" TEXT NOT NULL,
    "request_hash" TEXT NOT NULL,
    "run_id" UUID NOT NULL,
    "created_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "idempotency_key_pkey" PRIMARY KEY ("tenant_id","operation","key")
);

CREATE TABLE "channel" (
    "id" UUID NOT NULL,
    "tenant_id" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "kind" TEXT NOT NULL,
    "config" JSONB NOT NULL DEFAULT '{}',
    "bucket_tokens" DOUBLE PRECISION,
    "bucket_capacity" DOUBLE PRECISION,
    "bucket_restore_per_s" DOUBLE PRECISION,
    "bucket_at" TIMESTAMPTZ(6),
    "circuit" "circuit_state" NOT NULL DEFAULT 'CLOSED',
    "circuit_open_until" TIMESTAMPTZ(6),
    "consecutive_429" INTEGER NOT NULL DEFAULT 0,
    "slots" JSONB NOT NULL DEFAULT '{}',
    "created_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "updated_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "channel_pkey" PRIMARY KEY ("id")
);

CREATE TABLE "source" (
    "id" UUID NOT NULL,
    "tenant_id" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "kind" TEXT NOT NULL,
    "config" JSONB NOT NULL DEFAULT '{}',
    "secrets" TEXT,
    "secrets_key_id" TEXT,
    "watermark" TIMESTAMPTZ(6),
    "last_run_id" UUID,
    "created_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "updated_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "source_pkey" PRIMARY KEY ("id")
);

CREATE TABLE "pricing_rule" (
    "id" UUID NOT NULL,
    "tenant_id" TEXT NOT NULL,
    "project_id" TEXT NOT NULL DEFAULT 'default',
    "name" TEXT NOT NULL,
    "enabled" BOOLEAN NOT NULL DEFAULT true,
    "priority" INTEGER NOT NULL DEFAULT 0,
    "version" INTEGER NOT NULL DEFAULT 1,
    "definition" JSONB NOT NULL,
    "created_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "updated_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "pricing_rule_pkey" PRIMARY KEY ("id")
);

CREATE TABLE "catalog_item" (
    "id" UUID NOT NULL,
    "tenant_id" TEXT NOT NULL,
    "external_id" TEXT NOT NULL,
    "title" TEXT NOT NULL,
    "unit_amount" BIGINT NOT NULL,
    "cost_amount" BIGINT,
    "currency" CHAR(3) NOT NULL,
    "attributes" JSONB NOT NULL DEFAULT '{}',
    "source_id" UUID,
    "created_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "updated_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "deleted_at" TIMESTAMPTZ(6),

    CONSTRAINT "catalog_item_pkey" PRIMARY KEY ("id")
);

CREATE TABLE "raw_item" (
    "source_id" UUID NOT NULL,
    "external_id" TEXT NOT NULL,
    "run_id" UUID NOT NULL,
    "payload" JSONB NOT NULL,
    "fetched_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "consolidated_at" TIMESTAMPTZ(6),

    CONSTRAINT "raw_item_pkey" PRIMARY KEY ("source_id","external_id")
);

CREATE TABLE "rejected_record" (
    "id" BIGSERIAL NOT NULL,
    "run_id" UUID NOT NULL,
    "tenant_id" TEXT NOT NULL,
    "partition_id" TEXT,
    "external_id" TEXT,
    "reason" TEXT NOT NULL,
    "payload" JSONB NOT NULL,
    "created_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "rejected_record_pkey" PRIMARY KEY ("id")
);

CREATE TABLE "rule_run" (
    "id" UUID NOT NULL,
    "tenant_id" TEXT NOT NULL,
    "project_id" TEXT NOT NULL DEFAULT 'default',
    "channel_id" UUID NOT NULL,
    "rule_id" UUID,
    "rule_snapshot" JSONB,
    "preview" JSONB,
    "status" TEXT NOT NULL DEFAULT 'PREVIEW',
    "status_from" TEXT,
    "currency" CHAR(3),
    "priority" INTEGER NOT NULL DEFAULT 0,
    "paused" BOOLEAN NOT NULL DEFAULT false,
    "actor" TEXT NOT NULL,
    "correlation_id" TEXT NOT NULL,
    "source" TEXT NOT NULL DEFAULT 'api',
    "error" TEXT,
    "metadata" JSONB NOT NULL DEFAULT '{}',
    "last_seq" INTEGER NOT NULL DEFAULT 0,
    "total_count" INTEGER NOT NULL DEFAULT 0,
    "preview_count" INTEGER NOT NULL DEFAULT 0,
    "queued_count" INTEGER NOT NULL DEFAULT 0,
    "applying_count" INTEGER NOT NULL DEFAULT 0,
    "applied_count" INTEGER NOT NULL DEFAULT 0,
    "failed_count" INTEGER NOT NULL DEFAULT 0,
    "rolled_back_count" INTEGER NOT NULL DEFAULT 0,
    "cancelled_count" INTEGER NOT NULL DEFAULT 0,
    "claim_epoch" INTEGER NOT NULL DEFAULT 0,
    "claim_cursor" BIGINT NOT NULL DEFAULT 0,
    "next_claim_at" TIMESTAMPTZ(6),
    "lease_floor" TIMESTAMPTZ(6),
    "last_served_at" TIMESTAMPTZ(6),
    "start_at" TIMESTAMPTZ(6),
    "auto_revert_at" TIMESTAMPTZ(6),
    "auto_reverted" BOOLEAN NOT NULL DEFAULT false,
    "rolling_back" BOOLEAN NOT NULL DEFAULT false,
    "rollback_asked_at" TIMESTAMPTZ(6),
    "rollback_all" BOOLEAN NOT NULL DEFAULT false,
    "rollback_on_conflict" TEXT,
    "created_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "queued_at" TIMESTAMPTZ(6),
    "started_at" TIMESTAMPTZ(6),
    "finished_at" TIMESTAMPTZ(6),

    CONSTRAINT "rule_run_pkey" PRIMARY KEY ("id")
);

CREATE TABLE "rule_target" (
    "id" BIGSERIAL NOT NULL,
    "run_id" UUID NOT NULL,
    "tenant_id" TEXT NOT NULL,
    "external_id" TEXT NOT NULL,
    "status" TEXT NOT NULL DEFAULT 'PREVIEW',
    "status_from" TEXT,
    "currency" CHAR(3) NOT NULL,
    "before_amount" BIGINT NOT NULL,
    "after_amount" BIGINT NOT NULL,
    "attempts" INTEGER NOT NULL DEFAULT 0,
    "lost_leases" INTEGER NOT NULL DEFAULT 0,
    "next_attempt_at" TIMESTAMPTZ(6),
    "lease_owner" TEXT,
    "lease_until" TIMESTAMPTZ(6),
    "lease_epoch" INTEGER,
    "error_code" TEXT,
    "error_message" TEXT,
    "applied_at" TIMESTAMPTZ(6),
    "rolled_back_at" TIMESTAMPTZ(6),
    "rollback_attempts" INTEGER NOT NULL DEFAULT 0,

    CONSTRAINT "rule_target_pkey" PRIMARY KEY ("id")
);

CREATE TABLE "reconciliation_report" (
    "id" UUID NOT NULL,
    "tenant_id" TEXT NOT NULL,
    "run_id" UUID NOT NULL,
    "trigger" TEXT NOT NULL,
    "total_checked" INTEGER NOT NULL,
    "mismatches" INTEGER NOT NULL,
    "details" JSONB NOT NULL DEFAULT '[]',
    "created_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "reconciliation_report_pkey" PRIMARY KEY ("id")
);

CREATE TABLE "run_metadata" (
    "run_id" UUID NOT NULL DEFAULT gen_random_uuid(),
    "tenant_id" TEXT NOT NULL DEFAULT 'default',
    "project_id" TEXT NOT NULL DEFAULT 'default',
    "source_id" UUID NOT NULL,
    "exclusive" BOOLEAN NOT NULL DEFAULT false,
    "status" TEXT NOT NULL DEFAULT 'CREATED',
    "status_from" TEXT,
    "run_type" TEXT NOT NULL,
    "expected_workers" INTEGER NOT NULL,
    "completed_workers" INTEGER NOT NULL DEFAULT 0,
    "failed_workers" INTEGER NOT NULL DEFAULT 0,
    "records_consolidated" INTEGER NOT NULL DEFAULT 0,
    "records_rejected" INTEGER NOT NULL DEFAULT 0,
    "records_deleted" INTEGER NOT NULL DEFAULT 0,
    "watermark_before" TIMESTAMPTZ(6),
    "plan_began_at" TIMESTAMPTZ(6),
    "watermark_after" TIMESTAMPTZ(6),
    "actor" TEXT NOT NULL DEFAULT 'system',
    "error" TEXT,
    "metadata" JSONB NOT NULL DEFAULT '{}',
    "last_seq" INTEGER NOT NULL DEFAULT 0,
    "attempts" INTEGER NOT NULL DEFAULT 0,
    "next_attempt_at" TIMESTAMPTZ(6),
    "claim_epoch" INTEGER NOT NULL DEFAULT 0,
    "lease_owner" TEXT,
    "lease_until" TIMESTAMPTZ(6),
    "lease_epoch" INTEGER,
    "created_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "started_at" TIMESTAMPTZ(6) DEFAULT CURRENT_TIMESTAMP,
    "completed_at" TIMESTAMPTZ(6),
    "finished_at" TIMESTAMPTZ(6),

    CONSTRAINT "run_metadata_pkey" PRIMARY KEY ("run_id")
);

CREATE TABLE "worker_runs" (
    "id" UUID NOT NULL DEFAULT gen_random_uuid(),
    "run_id" UUID NOT NULL,
    "tenant_id" TEXT NOT NULL,
    "partition_id" TEXT NOT NULL,
    "worker_id" TEXT NOT NULL DEFAULT '',
    "status" TEXT NOT NULL DEFAULT 'pending',
    "status_from" TEXT,
    "records_processed" INTEGER NOT NULL DEFAULT 0,
    "records_duplicated" INTEGER NOT NULL DEFAULT 0,
    "records_rejected" INTEGER NOT NULL DEFAULT 0,
    "records_missing" INTEGER NOT NULL DEFAULT 0,
    "error_message" TEXT,
    "work_item_payload" JSONB,
    "page_cursor" TEXT,
    "attempts" INTEGER NOT NULL DEFAULT 0,
    "next_attempt_at" TIMESTAMPTZ(6),
    "claim_epoch" INTEGER NOT NULL DEFAULT 0,
    "lease_owner" TEXT,
    "lease_until" TIMESTAMPTZ(6),
    "lease_epoch" INTEGER,
    "started_at" TIMESTAMPTZ(6) DEFAULT CURRENT_TIMESTAMP,
    "completed_at" TIMESTAMPTZ(6),

    CONSTRAINT "worker_runs_pkey" PRIMARY KEY ("id")
);

CREATE TABLE "partition_progress" (
    "run_id" UUID NOT NULL,
    "partition_id" TEXT NOT NULL,
    "tenant_id" TEXT NOT NULL,
    "next_offset" INTEGER NOT NULL DEFAULT 0,
    "completed" BOOLEAN NOT NULL DEFAULT false,
    "created_at" TIMESTAMPTZ(6) DEFAULT CURRENT_TIMESTAMP,
    "updated_at" TIMESTAMPTZ(6) DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "partition_progress_pkey" PRIMARY KEY ("run_id","partition_id")
);

CREATE TABLE "ops_run" (
    "id" UUID NOT NULL DEFAULT gen_random_uuid(),
    "tenant_id" TEXT NOT NULL,
    "project_id" TEXT NOT NULL,
    "env" TEXT NOT NULL,
    "git_sha" TEXT,
    "git_ref" TEXT,
    "status" TEXT NOT NULL DEFAULT 'queued',
    "status_from" TEXT,
    "priority" INTEGER NOT NULL DEFAULT 0,
    "claimed_by" TEXT,
    "attempts" INTEGER NOT NULL DEFAULT 0,
    "max_attempts" INTEGER NOT NULL DEFAULT 3,
    "on_stale" TEXT NOT NULL DEFAULT 'cancel',
    "idempotency_key" TEXT,
    "request_hash" TEXT,
    "metadata" JSONB NOT NULL DEFAULT '{}',
    "last_seq" INTEGER NOT NULL DEFAULT 0,
    "created_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "updated_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "queued_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "available_at" TIMESTAMPTZ(6),
    "started_at" TIMESTAMPTZ(6),
    "heartbeat_at" TIMESTAMPTZ(6),
    "finished_at" TIMESTAMPTZ(6),

    CONSTRAINT "ops_run_pkey" PRIMARY KEY ("id")
);

CREATE TABLE "run_event" (
    "run_id" UUID NOT NULL,
    "seq" INTEGER NOT NULL,
    "tenant_id" TEXT NOT NULL,
    "run_kind" "run_kind" NOT NULL,
    "type" TEXT NOT NULL,
    "level" "event_level" NOT NULL DEFAULT 'INFO',
    "message" TEXT NOT NULL,
    "payload" JSONB NOT NULL DEFAULT '{}',
    "actor" TEXT NOT NULL,
    "target_id" BIGINT,
    "created_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "run_event_pkey" PRIMARY KEY ("run_id","seq")
);

CREATE TABLE "worker" (
    "id" TEXT NOT NULL,
    "tenant_id" TEXT NOT NULL DEFAULT 'default',
    "host" TEXT NOT NULL,
    "pid_space" TEXT NOT NULL DEFAULT '',
    "pid" INTEGER NOT NULL,
    "state" TEXT NOT NULL,
    "active_leases" INTEGER NOT NULL DEFAULT 0,
    "started_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "heartbeat_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "worker_pkey" PRIMARY KEY ("id")
);

CREATE TABLE "maintenance_job" (
    "name" TEXT NOT NULL,
    "next_at" TIMESTAMPTZ(6) NOT NULL,
    "last_run_at" TIMESTAMPTZ(6),

    CONSTRAINT "maintenance_job_pkey" PRIMARY KEY ("name")
);

CREATE TABLE "state_transition" (
    "machine" TEXT NOT NULL,
    "event" TEXT NOT NULL,
    "from_state" TEXT NOT NULL,
    "to_state" TEXT NOT NULL,
    "actors" TEXT[],
    "condition" TEXT NOT NULL,

    CONSTRAINT "state_transition_pkey" PRIMARY KEY ("machine","event","from_state")
);

CREATE TABLE "sandbox_price" (
    "tenant_id" TEXT NOT NULL,
    "external_id" TEXT NOT NULL,
    "price" TEXT NOT NULL,

    CONSTRAINT "sandbox_price_pkey" PRIMARY KEY ("tenant_id","external_id")
);

CREATE TABLE "sandbox_fault" (
    "tenant_id" TEXT NOT NULL,
    "key" TEXT NOT NULL,
    "count" INTEGER NOT NULL,

    CONSTRAINT "sandbox_fault_pkey" PRIMARY KEY ("tenant_id","key")
);

CREATE UNIQUE INDEX "api_key_hash_key" ON "api_key"("hash");

CREATE INDEX "api_key_tenant_id_idx" ON "api_key"("tenant_id");

CREATE UNIQUE INDEX "channel_tenant_id_name_key" ON "channel"("tenant_id", "name");

CREATE UNIQUE INDEX "source_tenant_id_name_key" ON "source"("tenant_id", "name");

CREATE INDEX "pricing_rule_tenant_id_project_id_idx" ON "pricing_rule"("tenant_id", "project_id");

CREATE UNIQUE INDEX "catalog_item_tenant_id_external_id_key" ON "catalog_item"("tenant_id", "external_id");

CREATE INDEX "rejected_record_run_id_id_idx" ON "rejected_record"("run_id", "id");

CREATE UNIQUE INDEX "rule_run_id_tenant_id_key" ON "rule_run"("id", "tenant_id");

CREATE INDEX "rule_target_run_id_id_idx" ON "rule_target"("run_id", "id");

CREATE UNIQUE INDEX "rule_target_run_id_external_id_key" ON "rule_target"("run_id", "external_id");

CREATE INDEX "reconciliation_report_run_id_idx" ON "reconciliation_report"("run_id");

CREATE INDEX "run_metadata_tenant_id_created_at_run_id_idx" ON "run_metadata"("tenant_id", "created_at", "run_id");

CREATE INDEX "run_metadata_source_id_idx" ON "run_metadata"("source_id");

CREATE UNIQUE INDEX "run_metadata_run_id_tenant_id_key" ON "run_metadata"("run_id", "tenant_id");

CREATE UNIQUE INDEX "worker_runs_run_id_partition_id_key" ON "worker_runs"("run_id", "partition_id");

CREATE INDEX "ops_run_tenant_id_created_at_id_idx" ON "ops_run"("tenant_id", "created_at", "id");

CREATE INDEX "ops_run_tenant_id_status_created_at_id_idx" ON "ops_run"("tenant_id", "status", "created_at", "id");

CREATE INDEX "ops_run_tenant_id_project_id_created_at_id_idx" ON "ops_run"("tenant_id", "project_id", "created_at", "id");

CREATE UNIQUE INDEX "ops_run_tenant_id_idempotency_key_key" ON "ops_run"("tenant_id", "idempotency_key");

ALTER TABLE "api_key" ADD CONSTRAINT "api_key_tenant_id_fkey" FOREIGN KEY ("tenant_id") REFERENCES "tenant"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

ALTER TABLE "idempotency_key" ADD CONSTRAINT "idempotency_key_tenant_id_fkey" FOREIGN KEY ("tenant_id") REFERENCES "tenant"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

ALTER TABLE "channel" ADD CONSTRAINT "channel_tenant_id_fkey" FOREIGN KEY ("tenant_id") REFERENCES "tenant"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

ALTER TABLE "source" ADD CONSTRAINT "source_tenant_id_fkey" FOREIGN KEY ("tenant_id") REFERENCES "tenant"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

ALTER TABLE "pricing_rule" ADD CONSTRAINT "pricing_rule_tenant_id_fkey" FOREIGN KEY ("tenant_id") REFERENCES "tenant"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

ALTER TABLE "catalog_item" ADD CONSTRAINT "catalog_item_tenant_id_fkey" FOREIGN KEY ("tenant_id") REFERENCES "tenant"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

ALTER TABLE "raw_item" ADD CONSTRAINT "raw_item_source_id_fkey" FOREIGN KEY ("source_id") REFERENCES "source"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

ALTER TABLE "rejected_record" ADD CONSTRAINT "rejected_record_run_id_tenant_id_fkey" FOREIGN KEY ("run_id", "tenant_id") REFERENCES "run_metadata"("run_id", "tenant_id") ON DELETE RESTRICT ON UPDATE CASCADE;

ALTER TABLE "rule_run" ADD CONSTRAINT "rule_run_tenant_id_fkey" FOREIGN KEY ("tenant_id") REFERENCES "tenant"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

ALTER TABLE "rule_run" ADD CONSTRAINT "rule_run_channel_id_fkey" FOREIGN KEY ("channel_id") REFERENCES "channel"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

ALTER TABLE "rule_target" ADD CONSTRAINT "rule_target_run_id_tenant_id_fkey" FOREIGN KEY ("run_id", "tenant_id") REFERENCES "rule_run"("id", "tenant_id") ON DELETE RESTRICT ON UPDATE CASCADE;

ALTER TABLE "reconciliation_report" ADD CONSTRAINT "reconciliation_report_run_id_tenant_id_fkey" FOREIGN KEY ("run_id", "tenant_id") REFERENCES "rule_run"("id", "tenant_id") ON DELETE RESTRICT ON UPDATE CASCADE;

ALTER TABLE "run_metadata" ADD CONSTRAINT "run_metadata_tenant_id_fkey" FOREIGN KEY ("tenant_id") REFERENCES "tenant"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

ALTER TABLE "run_metadata" ADD CONSTRAINT "run_metadata_source_id_fkey" FOREIGN KEY ("source_id") REFERENCES "source"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

ALTER TABLE "worker_runs" ADD CONSTRAINT "worker_runs_run_id_tenant_id_fkey" FOREIGN KEY ("run_id", "tenant_id") REFERENCES "run_metadata"("run_id", "tenant_id") ON DELETE RESTRICT ON UPDATE CASCADE;

ALTER TABLE "partition_progress" ADD CONSTRAINT "partition_progress_run_id_tenant_id_fkey" FOREIGN KEY ("run_id", "tenant_id") REFERENCES "run_metadata"("run_id", "tenant_id") ON DELETE RESTRICT ON UPDATE CASCADE;

ALTER TABLE "ops_run" ADD CONSTRAINT "ops_run_tenant_id_fkey" FOREIGN KEY ("tenant_id") REFERENCES "tenant"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

ALTER TABLE "worker" ADD CONSTRAINT "worker_tenant_id_fkey" FOREIGN KEY ("tenant_id") REFERENCES "tenant"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

-- Storage. A target is updated a few times in quick succession: with half of each page free and no index on
-- what changes, those updates are heap-only and leave the indexes alone.
ALTER TABLE "rule_target" SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE "rule_run" SET (fillfactor = 50);
ALTER TABLE "run_metadata" SET (fillfactor = 50);
ALTER TABLE "worker_runs" SET (fillfactor = 50);
ALTER TABLE "partition_progress" SET (fillfactor = 50);
ALTER TABLE "ops_run" SET (fillfactor = 50);

-- Runs that may have work. Small: finished runs are not in it. Like every index of this table, on nothing that
-- changes with each batch, so that those updates are heap-only too.
CREATE INDEX "rule_run_active_idx" ON "rule_run" ("id") WHERE "status" IN ('QUEUED', 'APPLYING') OR "rolling_back";

-- Runs that set themselves back one day.
CREATE INDEX "rule_run_auto_revert_idx" ON "rule_run" ("auto_revert_at")
  WHERE "auto_revert_at" IS NOT NULL AND NOT "auto_reverted";

-- Runs that may have leases out, which recovery looks at.
CREATE INDEX "rule_run_leased_idx" ON "rule_run" ("id") WHERE "lease_floor" IS NOT NULL;

-- Targets that wait to be claimed again, or to be set back. The status is deliberately no part of it (see above); a target
-- that was never returned to the queue has no entry here and is found by the run's claim cursor.
CREATE INDEX "rule_target_waiting_idx" ON "rule_target" ("run_id", "next_attempt_at")
  WHERE "next_attempt_at" IS NOT NULL;

-- Ops runs to claim, in the order in which they are claimed: any, or those of one environment.
CREATE INDEX "ops_run_claimable_idx" ON "ops_run" ("tenant_id", "priority" DESC, "queued_at", "id")
  WHERE "status" = 'queued';
CREATE INDEX "ops_run_claimable_env_idx" ON "ops_run" ("tenant_id", "env", "priority" DESC, "queued_at", "id")
  WHERE "status" = 'queued';

-- Ops runs that somebody works on, which the search for stale ones looks at.
CREATE INDEX "ops_run_claimed_idx" ON "ops_run" ("started_at") WHERE "status" IN ('claimed', 'running');

-- Pipeline runs that may have work.
CREATE INDEX "run_metadata_active_idx" ON "run_metadata" ("run_id")
  WHERE "status" IN ('CREATED', 'WORKERS_RUNNING', 'CONSOLIDATING');

-- One active run per source, of those that asked to be the only one.
CREATE UNIQUE INDEX "run_metadata_exclusive_idx" ON "run_metadata" ("source_id")
  WHERE "exclusive" AND "status" IN ('CREATED', 'WORKERS_RUNNING', 'CONSOLIDATION_SKIPPED', 'CONSOLIDATING');

-- What consolidation has still to do.
CREATE INDEX "raw_item_waiting_idx" ON "raw_item" ("source_id", "external_id") WHERE "consolidated_at" IS NULL;

-- A target's history.
CREATE INDEX "run_event_target_idx" ON "run_event" ("target_id") WHERE "target_id" IS NOT NULL;

INSERT INTO "tenant" ("id", "name") VALUES ('default', 'Default');

-- Amounts are integers that a JSON number holds exactly.
ALTER TABLE "catalog_item" ADD CONSTRAINT "catalog_item_amounts" CHECK (
  "unit_amount" BETWEEN 0 AND 9007199254740991
  AND ("cost_amount" IS NULL OR "cost_amount" BETWEEN 0 AND 9007199254740991));

ALTER TABLE "tenant" ADD CONSTRAINT "tenant_guardrails" CHECK ("max_targets" >= 0 AND "max_change_percent" >= 0);
