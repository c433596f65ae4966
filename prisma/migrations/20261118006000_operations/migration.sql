-- What the people on call need.

-- ------------------------------------------------------------------------------------------- facts
-- Read at every scrape and by the alerts, so each is answered from an index that today's work does not write:
-- a run enters and leaves them when its state changes or a target fails, not with every batch.

-- Runs that have dead letters.
CREATE INDEX rule_run_dead_letter_idx ON rule_run (tenant_id) WHERE failed_count > 0;

-- Runs by the time they ended, for rates over a window and for retention.
CREATE INDEX rule_run_finished_idx ON rule_run (finished_at) WHERE finished_at IS NOT NULL;

-- Pipeline runs that are under way.
CREATE INDEX run_metadata_open_idx ON run_metadata (run_id)
  WHERE status IN ('CREATED', 'WORKERS_RUNNING', 'CONSOLIDATING');

-- -------------------------------------------------------------------------------------------- bell

-- As before, and when it was rung, in milliseconds, so that listeners can tell how far behind they are.
CREATE OR REPLACE FUNCTION ring_bell(kind run_kind, run_id uuid, seq integer, tenant_id text) RETURNS void
LANGUAGE sql AS $$
  SELECT pg_notify('runledger', json_build_object('kind', kind, 'id', run_id, 'seq', seq, 'tenant', tenant_id,
    'at', floor(extract(epoch FROM clock_timestamp()) * 1000))::text)
$$;

-- ------------------------------------------------------------------------------------------ alerts

-- What a tenant has set; a null is the policy's own figure.
CREATE TABLE "alert_policy" (
    "tenant_id" TEXT NOT NULL,
    "policy" TEXT NOT NULL,
    "enabled" BOOLEAN NOT NULL DEFAULT true,
    "threshold" DOUBLE PRECISION,
    "window_seconds" INTEGER,
    "cooldown_seconds" INTEGER,
    "updated_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "alert_policy_pkey" PRIMARY KEY ("tenant_id","policy"),
    CONSTRAINT "alert_policy_tenant_id_fkey" FOREIGN KEY ("tenant_id") REFERENCES "tenant"("id") ON DELETE RESTRICT ON UPDATE CASCADE,
    CONSTRAINT "alert_policy_figures" CHECK (window_seconds > 0 AND cooldown_seconds >= 0)
);

-- Fires once and resolves once; then it is history.
CREATE TABLE "alert" (
    "id" UUID NOT NULL,
    "tenant_id" TEXT NOT NULL,
    "policy" TEXT NOT NULL,
    "subject" TEXT NOT NULL DEFAULT '',
    "severity" TEXT NOT NULL,
    "message" TEXT NOT NULL,
    "value" DOUBLE PRECISION NOT NULL,
    "threshold" DOUBLE PRECISION NOT NULL,
    "fired_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "resolved_at" TIMESTAMPTZ(6),

    CONSTRAINT "alert_pkey" PRIMARY KEY ("id"),
    CONSTRAINT "alert_tenant_id_fkey" FOREIGN KEY ("tenant_id") REFERENCES "tenant"("id") ON DELETE RESTRICT ON UPDATE CASCADE,
    CONSTRAINT "alert_times" CHECK (fired_at <= resolved_at)
);
CREATE INDEX "alert_tenant_id_id_idx" ON "alert"("tenant_id", "id");
-- Never twice at once, whoever evaluates.
CREATE UNIQUE INDEX "alert_firing_key" ON "alert" ("tenant_id", "policy", "subject") WHERE "resolved_at" IS NULL;
CREATE INDEX "alert_resolved_idx" ON "alert" ("resolved_at") WHERE "resolved_at" IS NOT NULL;

CREATE TABLE "alert_sink" (
    "id" UUID NOT NULL,
    "tenant_id" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "kind" TEXT NOT NULL,
    "config" JSONB NOT NULL DEFAULT '{}',
    "secrets" TEXT,
    "secrets_key_id" TEXT,
    "severities" TEXT[],
    "enabled" BOOLEAN NOT NULL DEFAULT true,
    "created_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "updated_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "alert_sink_pkey" PRIMARY KEY ("id"),
    CONSTRAINT "alert_sink_tenant_id_fkey" FOREIGN KEY ("tenant_id") REFERENCES "tenant"("id") ON DELETE RESTRICT ON UPDATE CASCADE
);
CREATE UNIQUE INDEX "alert_sink_tenant_id_name_key" ON "alert_sink"("tenant_id", "name");

-- What a sink is still to be told, and what it was told. Written with the alert, in one transaction.
CREATE TABLE "alert_notice" (
    "id" BIGSERIAL NOT NULL,
    "tenant_id" TEXT NOT NULL,
    "sink_id" UUID NOT NULL,
    "alert_id" UUID,
    "event" TEXT NOT NULL,
    "attempts" INTEGER NOT NULL DEFAULT 0,
    "next_attempt_at" TIMESTAMPTZ(6) DEFAULT CURRENT_TIMESTAMP,
    "delivered_at" TIMESTAMPTZ(6),
    "error" TEXT,
    "created_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "alert_notice_pkey" PRIMARY KEY ("id"),
    CONSTRAINT "alert_notice_tenant_id_fkey" FOREIGN KEY ("tenant_id") REFERENCES "tenant"("id") ON DELETE RESTRICT ON UPDATE CASCADE,
    CONSTRAINT "alert_notice_sink_id_fkey" FOREIGN KEY ("sink_id") REFERENCES "alert_sink"("id") ON DELETE CASCADE ON UPDATE CASCADE,
    CONSTRAINT "alert_notice_alert_id_fkey" FOREIGN KEY ("alert_id") REFERENCES "alert"("id") ON DELETE CASCADE ON UPDATE CASCADE
);
CREATE INDEX "alert_notice_alert_id_idx" ON "alert_notice"("alert_id");
CREATE INDEX "alert_notice_sink_id_id_idx" ON "alert_notice"("sink_id", "id");
-- A sink is told things in their order.
CREATE INDEX "alert_notice_waiting_idx" ON "alert_notice" ("sink_id", "id") WHERE "next_attempt_at" IS NOT NULL;

-- When channels asked to slow down. Few rows, and none older than a day.
CREATE TABLE "channel_throttle" (
    "id" BIGSERIAL NOT NULL,
    "tenant_id" TEXT NOT NULL,
    "channel_id" UUID NOT NULL,
    "count" INTEGER NOT NULL,
    "at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "channel_throttle_pkey" PRIMARY KEY ("id"),
    CONSTRAINT "channel_throttle_channel_id_fkey" FOREIGN KEY ("channel_id") REFERENCES "channel"("id") ON DELETE CASCADE ON UPDATE CASCADE
);
CREATE INDEX "channel_throttle_at_idx" ON "channel_throttle"("at");

CREATE FUNCTION channel_throttle_note() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO channel_throttle (tenant_id, channel_id, count, at)
  VALUES (NEW.tenant_id, NEW.id, NEW.consecutive_429 - OLD.consecutive_429, clock_timestamp());
  RETURN NULL;
END
$$;

CREATE TRIGGER channel_throttled AFTER UPDATE OF consecutive_429 ON channel
  FOR EACH ROW WHEN (NEW.consecutive_429 > OLD.consecutive_429) EXECUTE FUNCTION channel_throttle_note();

-- Whoever watches alerts hears of each that fires or resolves, by the bell that runs have.
CREATE FUNCTION alert_ring() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('runledger', json_build_object('kind', 'ALERT', 'id', NEW.id, 'tenant', NEW.tenant_id,
    'at', floor(extract(epoch FROM clock_timestamp()) * 1000))::text);
  RETURN NULL;
END
$$;

CREATE TRIGGER alert_changed AFTER INSERT OR UPDATE ON alert
  FOR EACH ROW EXECUTE FUNCTION alert_ring();

-- --------------------------------------------------------------------------------------- schedules

CREATE TABLE "schedule" (
    "id" UUID NOT NULL,
    "tenant_id" TEXT NOT NULL,
    "project_id" TEXT NOT NULL DEFAULT 'default',
    "name" TEXT NOT NULL,
    "kind" "run_kind" NOT NULL,
    "request" JSONB NOT NULL,
    "cron" TEXT NOT NULL,
    "time_zone" TEXT NOT NULL DEFAULT 'UTC',
    "missed" TEXT NOT NULL DEFAULT 'SKIP',
    "enabled" BOOLEAN NOT NULL DEFAULT true,
    "next_at" TIMESTAMPTZ(6),
    "last_at" TIMESTAMPTZ(6),
    "last_run_id" UUID,
    "last_error" TEXT,
    "created_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "updated_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "schedule_pkey" PRIMARY KEY ("id"),
    CONSTRAINT "schedule_tenant_id_fkey" FOREIGN KEY ("tenant_id") REFERENCES "tenant"("id") ON DELETE RESTRICT ON UPDATE CASCADE,
    CONSTRAINT "schedule_kind" CHECK (kind IN ('RULE', 'PIPELINE')),
    CONSTRAINT "schedule_missed" CHECK (missed IN ('ONCE', 'SKIP')),
    CONSTRAINT "schedule_next" CHECK (enabled = (next_at IS NOT NULL))
);
CREATE UNIQUE INDEX "schedule_tenant_id_name_key" ON "schedule"("tenant_id", "name");
CREATE INDEX "schedule_due_idx" ON "schedule" ("next_at") WHERE "next_at" IS NOT NULL;
