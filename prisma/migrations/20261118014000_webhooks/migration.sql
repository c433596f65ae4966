-- Webhooks out: endpoints of a tenant, which are sent the ledger's lines, and how far each has come.

CREATE TABLE "webhook_endpoint" (
    "id" UUID NOT NULL,
    "tenant_id" TEXT NOT NULL,
    "name" TEXT NOT NULL,
    "config" JSONB NOT NULL DEFAULT '{}',
    "secrets" TEXT,
    "secrets_key_id" TEXT,
    "kinds" TEXT[],
    "event_types" TEXT[],
    "project_id" TEXT,
    "batch_size" INTEGER NOT NULL DEFAULT 100,
    "enabled" BOOLEAN NOT NULL DEFAULT true,
    "disabled_at" TIMESTAMPTZ(6),
    "disabled_reason" TEXT,
    "dead_after_hours" INTEGER NOT NULL DEFAULT 72,
    "dead_after_failures" INTEGER NOT NULL DEFAULT 20,
    "failures" INTEGER NOT NULL DEFAULT 0,
    "failing_since" TIMESTAMPTZ(6),
    "next_attempt_at" TIMESTAMPTZ(6),
    "last_delivered_at" TIMESTAMPTZ(6),
    "last_error" TEXT,
    "last_error_at" TIMESTAMPTZ(6),
    "ping_at" TIMESTAMPTZ(6),
    "pinged_at" TIMESTAMPTZ(6),
    "ping_error" TEXT,
    "created_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "updated_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "webhook_endpoint_pkey" PRIMARY KEY ("id"),
    CONSTRAINT "webhook_endpoint_tenant_id_fkey" FOREIGN KEY ("tenant_id") REFERENCES "tenant"("id") ON DELETE RESTRICT ON UPDATE CASCADE,
    CONSTRAINT "webhook_endpoint_secrets" CHECK ((secrets IS NULL) = (secrets_key_id IS NULL)),
    CONSTRAINT "webhook_endpoint_figures" CHECK (batch_size > 0 AND dead_after_hours >= 0 AND dead_after_failures > 0),
    CONSTRAINT "webhook_endpoint_failing" CHECK ((failures > 0) = (failing_since IS NOT NULL)),
    CONSTRAINT "webhook_endpoint_disabled" CHECK (enabled = (disabled_at IS NULL) AND enabled = (disabled_reason IS NULL))
);
CREATE UNIQUE INDEX "webhook_endpoint_tenant_id_name_key" ON "webhook_endpoint"("tenant_id", "name");

-- How far an endpoint has come in a run's ledger. Not there: nothing of an open run was sent yet, everything of
-- one that has ended. No foreign keys: they would have a run wait for whoever removes an endpoint. What is left
-- behind is swept away.
CREATE TABLE "webhook_cursor" (
    "id" BIGSERIAL NOT NULL,
    "endpoint_id" UUID NOT NULL,
    "run_id" UUID NOT NULL,
    "delivered_seq" INTEGER NOT NULL DEFAULT 0,
    "sending_seq" INTEGER,
    "replay_after" INTEGER,
    "failures" INTEGER NOT NULL DEFAULT 0,
    "error" TEXT,
    "next_attempt_at" TIMESTAMPTZ(6),
    "waiting_since" TIMESTAMPTZ(6),
    "lease_until" TIMESTAMPTZ(6),
    "lease_epoch" INTEGER NOT NULL DEFAULT 0,

    CONSTRAINT "webhook_cursor_pkey" PRIMARY KEY ("id"),
    CONSTRAINT "webhook_cursor_seq" CHECK (delivered_seq >= 0 AND sending_seq >= 0 AND replay_after >= 0),
    CONSTRAINT "webhook_cursor_waiting" CHECK ((next_attempt_at IS NULL) = (waiting_since IS NULL))
);
CREATE UNIQUE INDEX "webhook_cursor_run_id_endpoint_id_key" ON "webhook_cursor"("run_id", "endpoint_id");
-- What an endpoint is to be sent, longest wait first.
CREATE INDEX "webhook_cursor_due_idx" ON "webhook_cursor" ("endpoint_id", "next_attempt_at")
  WHERE "next_attempt_at" IS NOT NULL;

-- Open runs. Like every index of these tables, on nothing that changes with each batch.
CREATE INDEX "rule_run_unfinished_idx" ON "rule_run" ("tenant_id") WHERE "finished_at" IS NULL;
CREATE INDEX "run_metadata_unfinished_idx" ON "run_metadata" ("tenant_id") WHERE "finished_at" IS NULL;
CREATE INDEX "ops_run_unfinished_idx" ON "ops_run" ("tenant_id") WHERE "finished_at" IS NULL;

-- What webhooks know of a run, whatever its kind.
CREATE VIEW "webhook_run" AS
  SELECT 'RULE'::text AS kind, id, tenant_id, project_id, last_seq, finished_at FROM rule_run
  UNION ALL
  SELECT 'PIPELINE'::text, run_id, tenant_id, project_id, last_seq, finished_at FROM run_metadata
  UNION ALL
  SELECT 'OPS'::text, id, tenant_id, project_id, last_seq, finished_at FROM ops_run;

CREATE FUNCTION webhook_wants(endpoint webhook_endpoint, kind text, project_id text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT kind = ANY(endpoint.kinds) AND (endpoint.project_id IS NULL OR endpoint.project_id = project_id)
$$;

-- An open run is found because it is open. One that ends, or gets a line after its end, says so here, in the
-- transaction of that line: from the beginning when it has no cursor yet, from that line on when it had ended
-- before, since then all the others were sent or were not to be.
-- With the owner's rights and names: whoever may finish an ops run by SQL fires it.
CREATE FUNCTION webhook_note_ended() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  run uuid;
BEGIN
  IF TG_ARGV[0] = 'PIPELINE' THEN run := NEW.run_id; ELSE run := NEW.id; END IF;
  INSERT INTO webhook_cursor (endpoint_id, run_id, delivered_seq, next_attempt_at, waiting_since)
  SELECT endpoint.id, run, CASE WHEN OLD.finished_at IS NULL THEN 0 ELSE OLD.last_seq END,
    clock_timestamp(), clock_timestamp()
  FROM webhook_endpoint endpoint
  WHERE endpoint.tenant_id = NEW.tenant_id AND webhook_wants(endpoint, TG_ARGV[0], NEW.project_id)
  ON CONFLICT (run_id, endpoint_id) DO NOTHING;
  RETURN NULL;
END
$$;

-- The condition is all that a batch of targets costs here.
CREATE TRIGGER rule_run_webhooks AFTER UPDATE ON rule_run FOR EACH ROW
  WHEN (NEW.last_seq > OLD.last_seq AND (NEW.finished_at IS NOT NULL OR OLD.finished_at IS NOT NULL))
  EXECUTE FUNCTION webhook_note_ended('RULE');
CREATE TRIGGER run_metadata_webhooks AFTER UPDATE ON run_metadata FOR EACH ROW
  WHEN (NEW.last_seq > OLD.last_seq AND (NEW.finished_at IS NOT NULL OR OLD.finished_at IS NOT NULL))
  EXECUTE FUNCTION webhook_note_ended('PIPELINE');
CREATE TRIGGER ops_run_webhooks AFTER UPDATE ON ops_run FOR EACH ROW
  WHEN (NEW.last_seq > OLD.last_seq AND (NEW.finished_at IS NOT NULL OR OLD.finished_at IS NOT NULL))
  EXECUTE FUNCTION webhook_note_ended('OPS');

-- Deliverers hear of an endpoint that is new, was changed, or is to be tried, by the bell that runs have.
CREATE FUNCTION webhook_ring() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('runledger', json_build_object('kind', 'WEBHOOK', 'id', NEW.id, 'tenant', NEW.tenant_id,
    'at', floor(extract(epoch FROM clock_timestamp()) * 1000))::text);
  RETURN NULL;
END
$$;

CREATE TRIGGER webhook_endpoint_made AFTER INSERT ON webhook_endpoint
  FOR EACH ROW EXECUTE FUNCTION webhook_ring();
CREATE TRIGGER webhook_endpoint_changed AFTER UPDATE ON webhook_endpoint FOR EACH ROW
  WHEN (NEW.updated_at IS DISTINCT FROM OLD.updated_at) EXECUTE FUNCTION webhook_ring();
