-- A target's history without an index entry for each of its lines. The lines of one statement stand together in
-- the ledger, and its targets mostly have ids near each other: one row says which lines are of which targets. The
-- index of lines by target was, in entries, as large as all targets' changes, and a sixth of what a claim and a
-- settle cost.

CREATE TABLE "run_event_span" (
    "run_id" UUID NOT NULL,
    "first_seq" INTEGER NOT NULL,
    "last_seq" INTEGER NOT NULL,
    "first_target" BIGINT NOT NULL,
    "last_target" BIGINT NOT NULL,

    CONSTRAINT "run_event_span_pkey" PRIMARY KEY ("run_id","first_seq")
);

-- So many lines a row at most: a history reads those of a few rows.
CREATE FUNCTION lines_per_span() RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT 1000 $$;

-- Says of lines that are there already, those of a run from one number to another, which targets they are of.
CREATE FUNCTION note_spans(run uuid, from_seq integer, to_seq integer) RETURNS void
LANGUAGE sql AS $$
  INSERT INTO run_event_span (run_id, first_seq, last_seq, first_target, last_target)
  SELECT run, min(seq), max(seq), min(target_id), max(target_id)
  FROM run_event WHERE run_id = run AND seq BETWEEN from_seq AND to_seq AND to_state IS NOT NULL AND target_id IS NOT NULL
  GROUP BY seq / lines_per_span()
$$;

INSERT INTO run_event_span (run_id, first_seq, last_seq, first_target, last_target)
SELECT run_id, min(seq), max(seq), min(target_id), max(target_id)
FROM run_event WHERE to_state IS NOT NULL AND target_id IS NOT NULL GROUP BY run_id, seq / lines_per_span();

-- What else is said of targets is little, and has its index still.
DROP INDEX "run_event_target_idx";
CREATE INDEX "run_event_remark_idx" ON "run_event" ("target_id") WHERE "target_id" IS NOT NULL AND "to_state" IS NULL;

-- What the lines of one statement share is worked out once for all that made the same move: mostly all of them.
CREATE OR REPLACE FUNCTION rule_target_record() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
  moved record;
  run record;
  event text;
  move text;
  line_type text;
  line_level event_level;
  actor text := ledger_actor();
  at timestamptz := clock_timestamp();
BEGIN
  FOR moved IN
    SELECT run_id, status_from AS was, status AS is_now, count(*)::integer AS n,
      min(coalesce(next_attempt_at, at)) AS claimable_at, min(lease_until) AS lease_until,
      -- Only a first attempt moves the claim cursor: a target that came back lies behind it.
      max(CASE WHEN attempts = 1 THEN id END) AS furthest,
      min(id) AS first_target, max(id) AS last_target,
      row_number() OVER (PARTITION BY run_id) = count(*) OVER (PARTITION BY run_id) AS is_last
    FROM changed WHERE status_from IS NOT NULL GROUP BY run_id, status_from, status ORDER BY run_id
  LOOP
    UPDATE rule_run SET
      last_seq = last_seq + moved.n,
      preview_count = preview_count - CASE moved.was WHEN 'PREVIEW' THEN moved.n ELSE 0 END,
      queued_count = queued_count
        + CASE 'QUEUED' WHEN moved.is_now THEN moved.n WHEN moved.was THEN -moved.n ELSE 0 END,
      applying_count = applying_count
        + CASE 'APPLYING' WHEN moved.is_now THEN moved.n WHEN moved.was THEN -moved.n ELSE 0 END,
      applied_count = applied_count
        + CASE 'APPLIED' WHEN moved.is_now THEN moved.n WHEN moved.was THEN -moved.n ELSE 0 END,
      failed_count = failed_count
        + CASE 'FAILED' WHEN moved.is_now THEN moved.n WHEN moved.was THEN -moved.n ELSE 0 END,
      rolled_back_count = rolled_back_count + CASE moved.is_now WHEN 'ROLLED_BACK' THEN moved.n ELSE 0 END,
      cancelled_count = cancelled_count + CASE moved.is_now WHEN 'CANCELLED' THEN moved.n ELSE 0 END,
      next_claim_at = CASE moved.is_now WHEN 'QUEUED'
        THEN least(next_claim_at, moved.claimable_at) ELSE next_claim_at END,
      lease_floor = CASE moved.is_now WHEN 'APPLYING' THEN least(lease_floor, moved.lease_until) ELSE lease_floor END,
      claim_cursor = CASE moved.is_now WHEN 'APPLYING' THEN greatest(claim_cursor, moved.furthest) ELSE claim_cursor END
    WHERE id = moved.run_id
    RETURNING id, tenant_id, last_seq INTO run;

    event := state_event('rule_target', moved.was, moved.is_now);
    line_type := 'rule_target.' || event;
    line_level := ledger_level(event);
    move := moved.was || ' → ' || moved.is_now;
    -- Numbered as they were changed: between the lines of one statement no order means more than another.
    INSERT INTO run_event
      (run_id, seq, tenant_id, run_kind, type, level, message, payload, actor, target_id, created_at,
       from_state, to_state, external_id, attempt)
    SELECT
      run.id, run.last_seq - moved.n + row_number() OVER (), run.tenant_id, 'RULE',
      line_type, line_level, coalesce(line.error_message, move),
      CASE WHEN line.error_code IS NULL THEN '{}'
        ELSE jsonb_build_object('error', jsonb_build_object('code', line.error_code, 'message', line.error_message)) END,
      actor, line.id, at, moved.was, moved.is_now, line.external_id, line.attempts
    FROM (
      SELECT id, external_id, attempts,
        CASE WHEN moved.is_now IN ('QUEUED', 'FAILED') THEN error_code END AS error_code,
        CASE WHEN moved.is_now IN ('QUEUED', 'FAILED') THEN error_message END AS error_message
      FROM changed WHERE run_id = moved.run_id AND status_from = moved.was AND status = moved.is_now
    ) line;
    IF moved.n <= lines_per_span() THEN
      INSERT INTO run_event_span (run_id, first_seq, last_seq, first_target, last_target)
      VALUES (run.id, run.last_seq - moved.n + 1, run.last_seq, moved.first_target, moved.last_target);
    ELSE
      PERFORM note_spans(run.id, run.last_seq - moved.n + 1, run.last_seq);
    END IF;
    IF moved.is_last THEN
      PERFORM ring_bell('RULE', run.id, run.last_seq, run.tenant_id);
    END IF;
  END LOOP;
  RETURN NULL;
END
$$;

-- Lines are numbered without a gap: a range is a batch.
CREATE OR REPLACE FUNCTION prune_lines(work retention_work, most integer) RETURNS retention_work
LANGUAGE plpgsql AS $$
DECLARE
  upto integer := least(work.to_seq, work.line_position + most);
  gone integer;
BEGIN
  DELETE FROM run_event WHERE run_id = work.run_id AND seq > work.line_position AND seq <= upto;
  GET DIAGNOSTICS gone = ROW_COUNT;
  DELETE FROM run_event_span WHERE run_id = work.run_id AND last_seq <= upto;
  work.lines := work.lines + gone;
  work.line_position := upto;
  RETURN work;
END
$$;

-- Room for three versions of each target in its page, with the lease that the second one carries: a third of a
-- page was a little too much for that, and one change in twelve had to touch every index.
ALTER TABLE "rule_target" SET (fillfactor = 25);

-- Ends a transaction whose COMMIT is on its way already: the client cannot look at what its statements found.
CREATE FUNCTION call_off_unless(met boolean) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF met IS NOT TRUE THEN
    RAISE EXCEPTION USING ERRCODE = 'RL009', MESSAGE = 'the transaction was called off';
  END IF;
END
$$;
