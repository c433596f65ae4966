-- What retention may delete is decided here whoever asks; and what is read over and over reads no history.

-- ----------------------------------------------------------------------------------------- reading

-- Dead letters are summed over runs that still have them, not over those that were pruned since.
DROP INDEX rule_run_dead_letter_idx;
CREATE INDEX rule_run_dead_letter_idx ON rule_run (tenant_id) INCLUDE (failed_count)
  WHERE failed_count > 0 AND pruned_at IS NULL;

-- Runs that are whole, by how long they are kept: those whose prices stand, those that ended otherwise, and those
-- that were never queued. What is kept for ever is then not walked over by the search for what is not. The status
-- stands for the count of applied targets, which changes with every batch.
DROP INDEX rule_run_whole_idx;
CREATE INDEX rule_run_standing_idx ON rule_run (tenant_id, finished_at, id)
  WHERE finished_at IS NOT NULL AND pruned_at IS NULL AND status IN ('APPLIED', 'PARTIAL');
CREATE INDEX rule_run_whole_idx ON rule_run (tenant_id, finished_at, id)
  WHERE finished_at IS NOT NULL AND pruned_at IS NULL AND status NOT IN ('APPLIED', 'PARTIAL') AND queued_at IS NOT NULL;
CREATE INDEX rule_run_unqueued_idx ON rule_run (tenant_id, created_at, id)
  WHERE queued_at IS NULL AND pruned_at IS NULL;

-- ------------------------------------------------------------------------------------ throttled answers

-- Counted by whoever got them: the streak in the channel's row says nothing of those in between.
DROP TRIGGER channel_throttled ON channel;
DROP FUNCTION channel_throttle_note();

-- --------------------------------------------------------------------------------- whose time it is

DROP FUNCTION is_prunable(rule_run, retention_policy);
DROP FUNCTION is_prunable(run_metadata, retention_policy);
DROP FUNCTION is_prunable(ops_run, retention_policy);
DROP FUNCTION is_awaited(uuid);

-- Whether an endpoint for webhooks that is on has still to be sent some of a run: it is told so, or has not been
-- told yet of what came last. One that is off keeps nothing.
CREATE FUNCTION is_awaited(run uuid, last_seq integer) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT EXISTS (
    SELECT 1 FROM webhook_cursor cursor JOIN webhook_endpoint endpoint ON endpoint.id = cursor.endpoint_id
    WHERE cursor.run_id = run AND endpoint.enabled
      AND (cursor.next_attempt_at IS NOT NULL OR cursor.delivered_seq < last_seq))
$$;

-- A rule run whose prices stand in the channel can still be rolled back: it goes by rollback_days. One that was
-- never queued goes by its creation, whether somebody cancelled it or nobody asks for it any more. One that is
-- being worked on, compared with its channel, or is still to set itself back, is kept whatever its age.
CREATE FUNCTION is_prunable(run rule_run, policy retention_policy) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT run.pruned_at IS NULL AND NOT run.rolling_back AND run.applying_count = 0
    AND (run.finished_at IS NOT NULL OR run.status = 'PREVIEW')
    AND CASE WHEN run.queued_at IS NULL THEN run.created_at ELSE run.finished_at END
      < clock_timestamp() - make_interval(days =>
        CASE WHEN run.applied_count > 0 THEN policy.rollback_days ELSE policy.keep_days END)
    AND NOT (run.auto_revert_at IS NOT NULL AND NOT run.auto_reverted AND run.applied_count > 0
      AND run.status IN ('APPLIED', 'PARTIAL', 'CANCELLED'))
    AND NOT EXISTS (SELECT 1 FROM reconciliation WHERE run_id = run.id)
    AND NOT is_awaited(run.id, run.last_seq)
$$;

CREATE FUNCTION is_prunable(run run_metadata, policy retention_policy) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT run.pruned_at IS NULL AND run.lease_owner IS NULL
    AND run.finished_at < clock_timestamp() - make_interval(days => policy.keep_days)
    AND NOT is_awaited(run.run_id, run.last_seq)
$$;

CREATE FUNCTION is_prunable(run ops_run, policy retention_policy) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT run.pruned_at IS NULL AND run.finished_at < clock_timestamp() - make_interval(days => policy.keep_days)
    AND NOT is_awaited(run.id, run.last_seq)
$$;

-- ----------------------------------------------------------------------------------------- pruning

-- As before; a look soon after a hold is not late, so that who prunes by hand once a day gets to it.
CREATE OR REPLACE FUNCTION retention_look() RETURNS timestamptz
LANGUAGE sql AS $$
  INSERT INTO retention_clock AS clock (seen_at) VALUES (clock_timestamp())
  ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, held_until = CASE
    WHEN excluded.seen_at > greatest(clock.seen_at, clock.held_until) + interval '1 day'
      THEN excluded.seen_at + interval '1 day'
    -- Later than anybody sets it: the clock had run ahead and was put right.
    WHEN clock.held_until BETWEEN excluded.seen_at AND excluded.seen_at + interval '1 day' THEN clock.held_until
  END
  RETURNING held_until
$$;

-- A preview that nobody has queued ends here: cancelled, as anybody could have done, with its line in the ledger.
-- Its targets stay what they are until they go.
CREATE FUNCTION cancel_abandoned(p_run uuid) RETURNS void
LANGUAGE sql AS $$
  UPDATE rule_run run SET status = 'CANCELLED', error = format('never queued within %s days', policy.keep_days)
  FROM retention_policy policy
  WHERE run.id = p_run AND run.status = 'PREVIEW' AND policy.tenant_id = run.tenant_id AND policy.kind = 'RULE'
    AND is_prunable(run, policy)
$$;

-- Marks a run, if its time has come and nobody holds its row; whoever asked something of it before was first. The
-- clock is looked at first, whoever asks: while pruning is held nothing is marked, and the answer says until when.
DROP FUNCTION retention_begin(run_kind, uuid);
CREATE FUNCTION retention_begin(p_kind run_kind, p_run uuid, OUT begun boolean, OUT held_until timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  at timestamptz := clock_timestamp();
BEGIN
  begun := false;
  held_until := retention_look();
  IF held_until IS NOT NULL THEN RETURN; END IF;
  IF p_kind = 'RULE' THEN
    PERFORM 1 FROM rule_run WHERE id = p_run FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN RETURN; END IF;
    PERFORM cancel_abandoned(p_run);
    WITH marked AS (
      UPDATE rule_run run SET pruned_at = at, pruned_seq = run.last_seq, reconcile_at = NULL
      FROM retention_policy policy
      WHERE run.id = p_run AND policy.tenant_id = run.tenant_id AND policy.kind = p_kind AND is_prunable(run, policy)
        AND run.finished_at IS NOT NULL
      RETURNING run.id, run.status, run.pruned_seq, policy.*)
    INSERT INTO retention_work
      (run_id, run_kind, tenant_id, status, keep_days, rollback_days, policy_by, to_seq, begun_at)
    SELECT id, kind, tenant_id, status, keep_days, rollback_days, updated_by, pruned_seq, at FROM marked;
  ELSIF p_kind = 'PIPELINE' THEN
    PERFORM 1 FROM run_metadata WHERE run_id = p_run FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN RETURN; END IF;
    WITH marked AS (
      UPDATE run_metadata run SET pruned_at = at, pruned_seq = run.last_seq
      FROM retention_policy policy
      WHERE run.run_id = p_run AND policy.tenant_id = run.tenant_id AND policy.kind = p_kind AND is_prunable(run, policy)
      RETURNING run.run_id, run.status, run.pruned_seq, policy.*)
    INSERT INTO retention_work (run_id, run_kind, tenant_id, status, keep_days, policy_by, to_seq, begun_at)
    SELECT run_id, kind, tenant_id, status, keep_days, updated_by, pruned_seq, at FROM marked;
  ELSE
    PERFORM 1 FROM ops_run WHERE id = p_run FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN RETURN; END IF;
    WITH marked AS (
      UPDATE ops_run run SET pruned_at = at, pruned_seq = run.last_seq
      FROM retention_policy policy
      WHERE run.id = p_run AND policy.tenant_id = run.tenant_id AND policy.kind = p_kind AND is_prunable(run, policy)
      RETURNING run.id, run.status, run.pruned_seq, policy.*)
    INSERT INTO retention_work (run_id, run_kind, tenant_id, status, keep_days, policy_by, to_seq, begun_at)
    SELECT id, kind, tenant_id, status, keep_days, updated_by, pruned_seq, at FROM marked;
  END IF;
  begun := FOUND;
END
$$;
REVOKE ALL ON FUNCTION retention_begin FROM PUBLIC;

-- ------------------------------------------------------------------------------------- failed pipelines

-- How the last run of a source ended, whatever is under way since.
CREATE INDEX run_metadata_ended_idx ON run_metadata (source_id, finished_at) WHERE status IN ('COMPLETED', 'FAILED');

-- -------------------------------------------------------------------------------------------- webhooks

-- As before, and where the run's ledger begins, and what its log lines are found by.
CREATE OR REPLACE VIEW "webhook_run" AS
  SELECT 'RULE'::text AS kind, id, tenant_id, project_id, last_seq, finished_at, coalesce(pruned_seq, 0) AS pruned_seq,
    correlation_id
  FROM rule_run
  UNION ALL
  SELECT 'PIPELINE'::text, run_id, tenant_id, project_id, last_seq, finished_at, coalesce(pruned_seq, 0), run_id::text
  FROM run_metadata
  UNION ALL
  SELECT 'OPS'::text, id, tenant_id, project_id, last_seq, finished_at, coalesce(pruned_seq, 0), id::text FROM ops_run;

-- ------------------------------------------------------------------------------------------ alert sinks

-- A sink is told of what is critical and of the rest side by side, each in its order: neither waits for the other.
ALTER TABLE alert_notice ADD COLUMN "urgent" BOOLEAN NOT NULL DEFAULT false;
UPDATE alert_notice SET urgent = true FROM alert WHERE alert.id = alert_id AND alert.severity = 'CRITICAL';
DROP INDEX alert_notice_waiting_idx;
CREATE INDEX alert_notice_waiting_idx ON alert_notice (sink_id, urgent, id) WHERE next_attempt_at IS NOT NULL;
