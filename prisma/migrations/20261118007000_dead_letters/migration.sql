-- Dead letters: failed targets, found without a scan. An index on the status, even a partial one, would make
-- every update of a target touch the indexes (PostgreSQL counts a predicate's columns as indexed); this
-- column changes only when a target fails or is tried again, so all other updates stay heap-only.
ALTER TABLE "rule_target" ADD COLUMN "failed_at" TIMESTAMPTZ(6);

UPDATE rule_target SET failed_at = clock_timestamp() WHERE status = 'FAILED';

CREATE FUNCTION rule_target_stamp_failure() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  NEW.failed_at := CASE WHEN NEW.status = 'FAILED' THEN clock_timestamp() END;
  RETURN NEW;
END
$$;

CREATE TRIGGER rule_target_stamp_failure BEFORE UPDATE ON rule_target
  FOR EACH ROW WHEN ((NEW.status = 'FAILED') <> (OLD.status = 'FAILED'))
  EXECUTE FUNCTION rule_target_stamp_failure();

ALTER TABLE rule_target
  ADD CONSTRAINT rule_target_failed CHECK ((status = 'FAILED') = (failed_at IS NOT NULL));

-- The error code rides along: to count by code nobody reads the rows.
CREATE INDEX "rule_target_dead_letter_idx" ON "rule_target" ("tenant_id", "run_id", "id") INCLUDE ("error_code")
  WHERE "failed_at" IS NOT NULL;
