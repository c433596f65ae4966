-- Retention: what a run leaves behind is deleted when the tenant's policy says so, and in no other way.
--
-- A run whose time has come is marked as pruned first; from then on it changes no more. Then its ledger lines and
-- its parts go, a small batch per transaction, by index, without a lock on the run's row. The row itself stays,
-- with its counts. An append-only record says what was deleted, and under which policy.
--
-- Three locks on the door, none of which trusts the caller:
--   a run is marked only when its policy says that its time has come      (guard_pruned_run)
--   lines and parts are deleted by retention_prune alone                   (refuse_unless_pruning)
--   and only those of a run that is marked, up to where it was marked      (guard_pruned_lines, guard_pruned_parts)

-- ---------------------------------------------------------------------------------------- policies

-- What a tenant has set for a kind of run. Without a row, or with a null, nothing is ever deleted.
CREATE TABLE "retention_policy" (
    "tenant_id" TEXT NOT NULL,
    "kind" "run_kind" NOT NULL,
    "keep_days" INTEGER,
    "rollback_days" INTEGER,
    "updated_by" TEXT NOT NULL,
    "updated_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "retention_policy_pkey" PRIMARY KEY ("tenant_id","kind"),
    CONSTRAINT "retention_policy_tenant_id_fkey" FOREIGN KEY ("tenant_id") REFERENCES "tenant"("id") ON DELETE RESTRICT ON UPDATE CASCADE,
    CONSTRAINT "retention_policy_days" CHECK (keep_days BETWEEN 1 AND 36500 AND rollback_days BETWEEN 1 AND 36500),
    -- Only a rule run can be rolled back, and one that can is kept no shorter than one that cannot.
    CONSTRAINT "retention_policy_rollback" CHECK (
      rollback_days IS NULL OR (kind = 'RULE' AND keep_days IS NOT NULL AND rollback_days >= keep_days))
);

-- ------------------------------------------------------------------------------------- pruned runs

ALTER TABLE "rule_run" ADD COLUMN "pruned_at" TIMESTAMPTZ(6), ADD COLUMN "pruned_seq" INTEGER;
ALTER TABLE "ops_run" ADD COLUMN "pruned_at" TIMESTAMPTZ(6), ADD COLUMN "pruned_seq" INTEGER;
-- What partitions count is summed up in the run when they go.
ALTER TABLE "run_metadata"
  ADD COLUMN "pruned_at" TIMESTAMPTZ(6),
  ADD COLUMN "pruned_seq" INTEGER,
  ADD COLUMN "pruned_processed" INTEGER NOT NULL DEFAULT 0,
  ADD COLUMN "pruned_duplicated" INTEGER NOT NULL DEFAULT 0,
  ADD COLUMN "pruned_rejected" INTEGER NOT NULL DEFAULT 0,
  ADD COLUMN "pruned_missing" INTEGER NOT NULL DEFAULT 0;

ALTER TABLE rule_run ADD CONSTRAINT rule_run_pruned CHECK (
  CASE WHEN pruned_at IS NULL THEN pruned_seq IS NULL
    ELSE pruned_seq IS NOT NULL AND pruned_seq <= last_seq AND finished_at IS NOT NULL
      AND NOT rolling_back AND applying_count = 0 AND reconcile_at IS NULL END);
ALTER TABLE run_metadata ADD CONSTRAINT run_metadata_pruned CHECK (
  CASE WHEN pruned_at IS NULL THEN pruned_seq IS NULL
    ELSE pruned_seq IS NOT NULL AND pruned_seq <= last_seq AND finished_at IS NOT NULL END);
ALTER TABLE ops_run ADD CONSTRAINT ops_run_pruned CHECK (
  CASE WHEN pruned_at IS NULL THEN pruned_seq IS NULL
    ELSE pruned_seq IS NOT NULL AND pruned_seq <= last_seq AND finished_at IS NOT NULL END);

-- Runs that have ended and are still whole, oldest first. Like every index of these tables, on nothing that
-- changes with a batch of work.
CREATE INDEX "rule_run_whole_idx" ON "rule_run" ("tenant_id", "finished_at", "id")
  WHERE "finished_at" IS NOT NULL AND "pruned_at" IS NULL;
CREATE INDEX "run_metadata_whole_idx" ON "run_metadata" ("tenant_id", "finished_at", "run_id")
  WHERE "finished_at" IS NOT NULL AND "pruned_at" IS NULL;
CREATE INDEX "ops_run_whole_idx" ON "ops_run" ("tenant_id", "finished_at", "id")
  WHERE "finished_at" IS NOT NULL AND "pruned_at" IS NULL;

-- A key goes with the run that it stands for.
CREATE INDEX "idempotency_key_run_id_idx" ON "idempotency_key"("run_id");

-- Pruning under way: how far it has come. The row goes with the last batch, which writes the audit.
CREATE TABLE "retention_work" (
    "run_id" UUID NOT NULL,
    "run_kind" "run_kind" NOT NULL,
    "tenant_id" TEXT NOT NULL,
    "status" TEXT NOT NULL,
    "keep_days" INTEGER NOT NULL,
    "rollback_days" INTEGER,
    "policy_by" TEXT NOT NULL,
    "to_seq" INTEGER NOT NULL,
    "line_position" INTEGER NOT NULL DEFAULT 0,
    "part_position" BIGINT NOT NULL DEFAULT 0,
    "lines" INTEGER NOT NULL DEFAULT 0,
    "targets" INTEGER NOT NULL DEFAULT 0,
    "partitions" INTEGER NOT NULL DEFAULT 0,
    "rejected_records" INTEGER NOT NULL DEFAULT 0,
    "idempotency_keys" INTEGER NOT NULL DEFAULT 0,
    "begun_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "retention_work_pkey" PRIMARY KEY ("run_id")
);

-- What was deleted: one row per run, for ever.
CREATE TABLE "retention_audit" (
    "run_id" UUID NOT NULL,
    "run_kind" "run_kind" NOT NULL,
    "tenant_id" TEXT NOT NULL,
    "status" TEXT NOT NULL,
    "keep_days" INTEGER NOT NULL,
    "rollback_days" INTEGER,
    "policy_by" TEXT NOT NULL,
    "actor" TEXT NOT NULL,
    "from_seq" INTEGER NOT NULL,
    "to_seq" INTEGER NOT NULL,
    "lines" INTEGER NOT NULL,
    "targets" INTEGER NOT NULL,
    "partitions" INTEGER NOT NULL,
    "rejected_records" INTEGER NOT NULL,
    "idempotency_keys" INTEGER NOT NULL,
    "begun_at" TIMESTAMPTZ(6) NOT NULL,
    "finished_at" TIMESTAMPTZ(6) NOT NULL DEFAULT CURRENT_TIMESTAMP,

    CONSTRAINT "retention_audit_pkey" PRIMARY KEY ("run_id")
);
CREATE INDEX "retention_audit_tenant_id_finished_at_idx" ON "retention_audit"("tenant_id", "finished_at");

CREATE TRIGGER retention_audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON retention_audit
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- --------------------------------------------------------------------------------- whose time it is

-- Whether an endpoint for webhooks that is on has still to be sent some of a run. One that is off keeps nothing.
CREATE FUNCTION is_awaited(run uuid) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT EXISTS (
    SELECT 1 FROM webhook_cursor cursor JOIN webhook_endpoint endpoint ON endpoint.id = cursor.endpoint_id
    WHERE cursor.run_id = run AND cursor.next_attempt_at IS NOT NULL AND endpoint.enabled)
$$;

-- A rule run whose prices stand in the channel can still be rolled back: it goes by rollback_days. One that
-- is being worked on, compared with its channel, or is still to set itself back, is kept whatever its age.
CREATE FUNCTION is_prunable(run rule_run, policy retention_policy) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT run.pruned_at IS NULL AND NOT run.rolling_back AND run.applying_count = 0
    AND run.finished_at < clock_timestamp() - make_interval(days =>
      CASE WHEN run.applied_count > 0 THEN policy.rollback_days ELSE policy.keep_days END)
    AND NOT (run.auto_revert_at IS NOT NULL AND NOT run.auto_reverted AND run.applied_count > 0
      AND run.status IN ('APPLIED', 'PARTIAL', 'CANCELLED'))
    AND NOT EXISTS (SELECT 1 FROM reconciliation WHERE run_id = run.id)
    AND NOT is_awaited(run.id)
$$;

CREATE FUNCTION is_prunable(run run_metadata, policy retention_policy) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT run.pruned_at IS NULL AND run.lease_owner IS NULL
    AND run.finished_at < clock_timestamp() - make_interval(days => policy.keep_days)
    AND NOT is_awaited(run.run_id)
$$;

CREATE FUNCTION is_prunable(run ops_run, policy retention_policy) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT run.pruned_at IS NULL AND run.finished_at < clock_timestamp() - make_interval(days => policy.keep_days)
    AND NOT is_awaited(run.id)
$$;

-- With the owner's rights: whoever may update ops.runs has none on the policies.
CREATE FUNCTION guard_pruned_run() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  policy retention_policy;
BEGIN
  IF OLD.pruned_at IS NOT NULL THEN
    IF (NEW.pruned_at, NEW.pruned_seq, NEW.status) IS DISTINCT FROM (OLD.pruned_at, OLD.pruned_seq, OLD.status) THEN
      RAISE EXCEPTION USING ERRCODE = 'RL003', MESSAGE = format('%s: the run was pruned and stays as it is', TG_TABLE_NAME);
    END IF;
    RETURN NEW;
  END IF;
  SELECT * INTO policy FROM retention_policy p WHERE p.tenant_id = OLD.tenant_id AND p.kind = TG_ARGV[0]::run_kind;
  IF is_prunable(OLD, policy) IS NOT TRUE OR NEW.status <> OLD.status OR NEW.pruned_seq IS DISTINCT FROM OLD.last_seq THEN
    RAISE EXCEPTION USING ERRCODE = 'RL003', MESSAGE = format('%s: the time to prune this run has not come', TG_TABLE_NAME);
  END IF;
  RETURN NEW;
END
$$;

-- Named to come after the guards, which may still change the row.
CREATE TRIGGER rule_run_pruned BEFORE UPDATE ON rule_run
  FOR EACH ROW WHEN (OLD.pruned_at IS NOT NULL OR NEW.pruned_at IS NOT NULL) EXECUTE FUNCTION guard_pruned_run('RULE');
CREATE TRIGGER run_metadata_pruned BEFORE UPDATE ON run_metadata
  FOR EACH ROW WHEN (OLD.pruned_at IS NOT NULL OR NEW.pruned_at IS NOT NULL) EXECUTE FUNCTION guard_pruned_run('PIPELINE');
CREATE TRIGGER ops_run_pruned BEFORE UPDATE ON ops_run
  FOR EACH ROW WHEN (OLD.pruned_at IS NOT NULL OR NEW.pruned_at IS NOT NULL) EXECUTE FUNCTION guard_pruned_run('OPS');

-- ------------------------------------------------------------------------------ the way for deletes

CREATE FUNCTION refuse_unless_pruning() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' AND current_setting('runledger.pruning', true) = 'on' THEN
    RETURN NULL;
  END IF;
  RAISE EXCEPTION USING
    ERRCODE = 'RL003',
    MESSAGE = format('%s is append-only: %s is refused', TG_TABLE_NAME, TG_OP);
END
$$;

-- Up to which line a run was pruned; null for a run that is whole.
CREATE FUNCTION pruned_seq_of(kind run_kind, run uuid) RETURNS integer
LANGUAGE sql STABLE AS $$
  SELECT CASE kind
    WHEN 'RULE' THEN (SELECT pruned_seq FROM rule_run WHERE id = run)
    WHEN 'PIPELINE' THEN (SELECT pruned_seq FROM run_metadata WHERE run_id = run)
    WHEN 'OPS' THEN (SELECT pruned_seq FROM ops_run WHERE id = run)
  END
$$;

-- The setting alone opens nothing: anybody could set it.
CREATE FUNCTION guard_pruned_lines() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (
    SELECT 1 FROM (SELECT run_kind, run_id, max(seq) AS seq FROM gone GROUP BY run_kind, run_id) line
    WHERE line.seq > coalesce(pruned_seq_of(line.run_kind, line.run_id), 0))
  THEN
    RAISE EXCEPTION USING ERRCODE = 'RL003', MESSAGE = 'run_event is append-only: the run is not being pruned';
  END IF;
  RETURN NULL;
END
$$;

CREATE FUNCTION guard_pruned_parts() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (
    SELECT 1 FROM (SELECT DISTINCT run_id FROM gone) part
    WHERE pruned_seq_of(TG_ARGV[0]::run_kind, part.run_id) IS NULL)
  THEN
    RAISE EXCEPTION USING
      ERRCODE = 'RL003', MESSAGE = format('%s is append-only: the run is not being pruned', TG_TABLE_NAME);
  END IF;
  RETURN NULL;
END
$$;

DROP TRIGGER run_event_append_only ON run_event;
CREATE TRIGGER run_event_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON run_event
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_unless_pruning();
CREATE TRIGGER run_event_pruned AFTER DELETE ON run_event
  REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION guard_pruned_lines();

DROP TRIGGER rule_target_kept ON rule_target;
CREATE TRIGGER rule_target_kept BEFORE DELETE OR TRUNCATE ON rule_target
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_unless_pruning();
CREATE TRIGGER rule_target_pruned AFTER DELETE ON rule_target
  REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION guard_pruned_parts('RULE');

DROP TRIGGER worker_runs_kept ON worker_runs;
CREATE TRIGGER worker_runs_kept BEFORE DELETE OR TRUNCATE ON worker_runs
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_unless_pruning();
CREATE TRIGGER worker_runs_pruned AFTER DELETE ON worker_runs
  REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION guard_pruned_parts('PIPELINE');

-- ----------------------------------------------------------------------------------------- pruning

-- Marks a run, if its time has come and nobody holds its row; whoever asked something of it before was first.
CREATE FUNCTION retention_begin(p_kind run_kind, p_run uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  at timestamptz := clock_timestamp();
BEGIN
  IF p_kind = 'RULE' THEN
    PERFORM 1 FROM rule_run WHERE id = p_run FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN RETURN false; END IF;
    WITH marked AS (
      UPDATE rule_run run SET pruned_at = at, pruned_seq = run.last_seq, reconcile_at = NULL
      FROM retention_policy policy
      WHERE run.id = p_run AND policy.tenant_id = run.tenant_id AND policy.kind = p_kind AND is_prunable(run, policy)
      RETURNING run.id, run.status, run.pruned_seq, policy.*)
    INSERT INTO retention_work
      (run_id, run_kind, tenant_id, status, keep_days, rollback_days, policy_by, to_seq, begun_at)
    SELECT id, kind, tenant_id, status, keep_days, rollback_days, updated_by, pruned_seq, at FROM marked;
  ELSIF p_kind = 'PIPELINE' THEN
    PERFORM 1 FROM run_metadata WHERE run_id = p_run FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN RETURN false; END IF;
    WITH marked AS (
      UPDATE run_metadata run SET pruned_at = at, pruned_seq = run.last_seq
      FROM retention_policy policy
      WHERE run.run_id = p_run AND policy.tenant_id = run.tenant_id AND policy.kind = p_kind AND is_prunable(run, policy)
      RETURNING run.run_id, run.status, run.pruned_seq, policy.*)
    INSERT INTO retention_work (run_id, run_kind, tenant_id, status, keep_days, policy_by, to_seq, begun_at)
    SELECT run_id, kind, tenant_id, status, keep_days, updated_by, pruned_seq, at FROM marked;
  ELSE
    PERFORM 1 FROM ops_run WHERE id = p_run FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN RETURN false; END IF;
    WITH marked AS (
      UPDATE ops_run run SET pruned_at = at, pruned_seq = run.last_seq
      FROM retention_policy policy
      WHERE run.id = p_run AND policy.tenant_id = run.tenant_id AND policy.kind = p_kind AND is_prunable(run, policy)
      RETURNING run.id, run.status, run.pruned_seq, policy.*)
    INSERT INTO retention_work (run_id, run_kind, tenant_id, status, keep_days, policy_by, to_seq, begun_at)
    SELECT id, kind, tenant_id, status, keep_days, updated_by, pruned_seq, at FROM marked;
  END IF;
  RETURN FOUND;
END
$$;

-- The steps of a batch. Each takes up to `most` rows from where the last batch stopped, so that none walks
-- over what was deleted before it, and answers the work as it stands then. They pass only inside retention_prune.

-- Lines are numbered without a gap: a range is a batch.
CREATE FUNCTION prune_lines(work retention_work, most integer) RETURNS retention_work
LANGUAGE plpgsql AS $$
DECLARE
  upto integer := least(work.to_seq, work.line_position + most);
  gone integer;
BEGIN
  DELETE FROM run_event WHERE run_id = work.run_id AND seq > work.line_position AND seq <= upto;
  GET DIAGNOSTICS gone = ROW_COUNT;
  work.lines := work.lines + gone;
  work.line_position := upto;
  RETURN work;
END
$$;

-- ANY keeps the planner on the index of (run_id, id), whatever its statistics; here and below.
CREATE FUNCTION prune_targets(work retention_work, most integer) RETURNS retention_work
LANGUAGE plpgsql AS $$
DECLARE
  ids bigint[] := ARRAY(
    SELECT id FROM rule_target WHERE run_id = ANY(ARRAY[work.run_id]) AND id > work.part_position
    ORDER BY run_id, id LIMIT most);
BEGIN
  DELETE FROM rule_target WHERE id = ANY(ids);
  work.targets := work.targets + cardinality(ids);
  work.part_position := coalesce(ids[cardinality(ids)], work.part_position);
  RETURN work;
END
$$;

CREATE FUNCTION prune_rejected(work retention_work, most integer) RETURNS retention_work
LANGUAGE plpgsql AS $$
DECLARE
  ids bigint[] := ARRAY(
    SELECT id FROM rejected_record WHERE run_id = ANY(ARRAY[work.run_id]) AND id > work.part_position
    ORDER BY run_id, id LIMIT most);
BEGIN
  DELETE FROM rejected_record WHERE id = ANY(ids);
  work.rejected_records := work.rejected_records + cardinality(ids);
  work.part_position := coalesce(ids[cardinality(ids)], work.part_position);
  RETURN work;
END
$$;

-- Their figures move to the run in the same statement: whoever sums up gets the same before and after.
CREATE FUNCTION prune_partitions(work retention_work, most integer) RETURNS retention_work
LANGUAGE plpgsql AS $$
DECLARE
  part record;
BEGIN
  WITH gone AS (
    DELETE FROM worker_runs WHERE id = ANY(ARRAY(SELECT id FROM worker_runs WHERE run_id = work.run_id LIMIT most))
    RETURNING *
  ), progress AS (
    DELETE FROM partition_progress
    WHERE run_id = work.run_id AND partition_id = ANY(ARRAY(SELECT partition_id FROM gone))
  )
  SELECT count(*)::integer AS n, coalesce(sum(records_processed), 0)::integer AS processed,
    coalesce(sum(records_duplicated), 0)::integer AS duplicated,
    coalesce(sum(records_rejected), 0)::integer AS rejected, coalesce(sum(records_missing), 0)::integer AS missing
  INTO part FROM gone;
  UPDATE run_metadata SET pruned_processed = pruned_processed + part.processed,
    pruned_duplicated = pruned_duplicated + part.duplicated, pruned_rejected = pruned_rejected + part.rejected,
    pruned_missing = pruned_missing + part.missing
  WHERE run_id = work.run_id AND part.n > 0;
  work.partitions := work.partitions + part.n;
  RETURN work;
END
$$;

-- The last step: what is small, the audit, and the end of the work.
CREATE FUNCTION prune_rest(work retention_work) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  -- A report keeps its figures, not its list.
  UPDATE reconciliation_report SET details = '[]' WHERE run_id = work.run_id AND details <> '[]';
  DELETE FROM partition_progress WHERE run_id = work.run_id;
  DELETE FROM idempotency_key
  WHERE run_id = work.run_id OR run_id = ANY(ARRAY(SELECT id FROM reconciliation_report WHERE run_id = work.run_id));
  GET DIAGNOSTICS work.idempotency_keys = ROW_COUNT;
  INSERT INTO retention_audit (run_id, run_kind, tenant_id, status, keep_days, rollback_days, policy_by, actor,
    from_seq, to_seq, lines, targets, partitions, rejected_records, idempotency_keys, begun_at, finished_at)
  VALUES (work.run_id, work.run_kind, work.tenant_id, work.status, work.keep_days, work.rollback_days, work.policy_by,
    ledger_actor(), 1, work.to_seq, work.lines, work.targets, work.partitions, work.rejected_records,
    work.idempotency_keys, work.begun_at, clock_timestamp());
  DELETE FROM retention_work WHERE run_id = work.run_id;
END
$$;

-- Deletes up to `p_most` rows of a run that is marked, and says whether that was the last of it; answers null
-- when there is nothing to do, or somebody else is at it.
CREATE FUNCTION retention_prune(p_run uuid, p_most integer, OUT removed integer, OUT done boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  work retention_work;
  steps text[];
  step text;
  before integer;
BEGIN
  SELECT * INTO work FROM retention_work WHERE run_id = p_run FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN; END IF;
  removed := 0;
  steps := ARRAY['lines'] || CASE work.run_kind
    WHEN 'RULE' THEN ARRAY['targets'] WHEN 'PIPELINE' THEN ARRAY['rejected', 'partitions'] ELSE '{}'::text[] END;
  FOREACH step IN ARRAY steps LOOP
    before := work.lines + work.targets + work.partitions + work.rejected_records;
    CASE step
      WHEN 'lines' THEN work := prune_lines(work, p_most - removed);
      WHEN 'targets' THEN work := prune_targets(work, p_most - removed);
      WHEN 'rejected' THEN work := prune_rejected(work, p_most - removed);
      WHEN 'partitions' THEN work := prune_partitions(work, p_most - removed);
    END CASE;
    removed := removed + work.lines + work.targets + work.partitions + work.rejected_records - before;
    EXIT WHEN removed >= p_most;
  END LOOP;
  done := removed < p_most AND work.line_position = work.to_seq;
  IF done THEN
    PERFORM prune_rest(work);
  ELSE
    UPDATE retention_work SET line_position = work.line_position, part_position = work.part_position,
      lines = work.lines, targets = work.targets, partitions = work.partitions, rejected_records = work.rejected_records
    WHERE run_id = p_run;
  END IF;
END
$$;

REVOKE ALL ON FUNCTION retention_begin, retention_prune FROM PUBLIC;

-- A clock that leaps ahead makes every run look old, and what is deleted stays deleted. So the time of each look
-- is kept, and after a leap of more than a day nothing is pruned for a day.
CREATE TABLE "retention_clock" (
    "id" BOOLEAN NOT NULL DEFAULT true,
    "seen_at" TIMESTAMPTZ(6) NOT NULL,
    "held_until" TIMESTAMPTZ(6),

    CONSTRAINT "retention_clock_pkey" PRIMARY KEY ("id"),
    CONSTRAINT "retention_clock_single" CHECK ("id")
);

-- Notes the time; answers until when pruning is held, null when it is not.
CREATE FUNCTION retention_look() RETURNS timestamptz
LANGUAGE sql AS $$
  INSERT INTO retention_clock AS clock (seen_at) VALUES (clock_timestamp())
  ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, held_until = CASE
    WHEN excluded.seen_at > clock.seen_at + interval '1 day' THEN excluded.seen_at + interval '1 day'
    -- Later than anybody sets it: the clock had run ahead and was put right.
    WHEN clock.held_until BETWEEN excluded.seen_at AND excluded.seen_at + interval '1 day' THEN clock.held_until
  END
  RETURNING held_until
$$;

-- A ledger that is pruned is cleared a little at a time, so that new lines find the room of old ones.
ALTER TABLE "run_event" SET (autovacuum_vacuum_scale_factor = 0.02);

-- A function that comes with a setting of ours (SET runledger.pruning = 'on') can be made by a superuser alone,
-- which a database of somebody else's hosting does not give. Since 20261119017000 the functions set it themselves.
-- Formerly 9003fbeb87dd66587e9d05ac3f8ff5fe0e2eba4803a5b9ffcd7ee68e29d8c117
