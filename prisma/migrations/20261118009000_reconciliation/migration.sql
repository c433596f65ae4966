-- Reconciliation as work: a row while a run is being compared with its channel. It ends as a report.
CREATE TABLE "reconciliation" (
    "id" UUID NOT NULL,
    "tenant_id" TEXT NOT NULL,
    "run_id" UUID NOT NULL,
    "trigger" TEXT NOT NULL,
    "actor" TEXT NOT NULL,
    "repair" BOOLEAN NOT NULL DEFAULT false,
    "position" BIGINT NOT NULL DEFAULT 0,
    "checked" INTEGER NOT NULL DEFAULT 0,
    "mismatches" INTEGER NOT NULL DEFAULT 0,
    "details" JSONB NOT NULL DEFAULT '[]',
    "attempts" INTEGER NOT NULL DEFAULT 0,
    "next_attempt_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "lease_owner" TEXT,
    "lease_until" TIMESTAMPTZ(6),
    "lease_epoch" INTEGER NOT NULL DEFAULT 0,
    "created_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "reconciliation_pkey" PRIMARY KEY ("id")
);

-- A second request of the same kind joins the first.
CREATE UNIQUE INDEX "reconciliation_run_id_trigger_key" ON "reconciliation"("run_id", "trigger");

ALTER TABLE "reconciliation" ADD CONSTRAINT "reconciliation_run_id_tenant_id_fkey" FOREIGN KEY ("run_id", "tenant_id") REFERENCES "rule_run"("id", "tenant_id") ON DELETE CASCADE ON UPDATE CASCADE;

ALTER TABLE reconciliation
  ADD CONSTRAINT reconciliation_lease CHECK ((lease_owner IS NULL) = (lease_until IS NULL)),
  ADD CONSTRAINT reconciliation_trigger CHECK (trigger IN ('manual', 'immediate', 'delayed', 'periodic'));

ALTER TABLE "reconciliation_report" ADD COLUMN "repair_run_id" UUID;

-- When a run is to be looked at next. The schedule itself is the server's; the database only says that a run
-- has come to an end, whoever ended it, and that one which goes on again or was undone is not to be looked at.
ALTER TABLE "rule_run" ADD COLUMN "reconcile_at" TIMESTAMPTZ(6);

UPDATE rule_run SET reconcile_at = finished_at WHERE status IN ('APPLIED', 'PARTIAL') AND applied_count > 0;

CREATE INDEX "rule_run_reconcile_idx" ON "rule_run" ("reconcile_at") WHERE "reconcile_at" IS NOT NULL;

CREATE FUNCTION rule_run_plan_reconciliation() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  NEW.reconcile_at := CASE WHEN NEW.status IN ('APPLIED', 'PARTIAL') AND NEW.applied_count > 0 THEN NEW.finished_at END;
  RETURN NEW;
END
$$;

-- Named to come after the guard, which sets finished_at.
CREATE TRIGGER rule_run_plan_reconciliation BEFORE UPDATE ON rule_run
  FOR EACH ROW WHEN (NEW.status <> OLD.status)
  EXECUTE FUNCTION rule_run_plan_reconciliation();
