-- Cheaper claims and settles. Of what a change of a target costs, most was JSON: building a line's payload took
-- longer than updating the target and appending the line. So a target's line keeps its facts in columns, and
-- its payload is made when somebody reads it.

ALTER TABLE "run_event"
  ADD COLUMN "from_state" TEXT,
  ADD COLUMN "to_state" TEXT,
  ADD COLUMN "external_id" TEXT,
  ADD COLUMN "attempt" INTEGER;

-- A line's payload, whole: SELECT seq, type, event_payload(run_event) FROM run_event …
CREATE FUNCTION event_payload(line run_event) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE WHEN line.to_state IS NULL THEN line.payload
    ELSE jsonb_build_object('targetId', line.target_id::text, 'externalId', line.external_id,
      'from', line.from_state, 'to', line.to_state, 'attempt', line.attempt) || line.payload END
$$;

-- The levels as constants: a cast from text looks the enum up for every line.
CREATE OR REPLACE FUNCTION ledger_level(event text) RETURNS event_level
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE
    WHEN event IN ('fail', 'exhaust') THEN 'ERROR'::event_level
    WHEN event IN ('retry', 'complete_partially', 'skip_consolidation') THEN 'WARN'::event_level
    ELSE 'INFO'::event_level
  END
$$;

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
    IF moved.is_last THEN
      PERFORM ring_bell('RULE', run.id, run.last_seq, run.tenant_id);
    END IF;
  END LOOP;
  RETURN NULL;
END
$$;

-- Most changes are claims and successes. A statement that stamps those as the guard would, previous status and
-- all, is looked at by this condition alone, at a tenth of the price; whatever the condition does not know goes
-- through the guard, as everything did.
DROP TRIGGER rule_target_guard ON rule_target;
CREATE TRIGGER rule_target_guard BEFORE UPDATE ON rule_target
  FOR EACH ROW WHEN (
    (NEW.status <> OLD.status OR NEW.status_from IS NOT NULL)
    AND (NEW.status_from = OLD.status AND NEW.next_attempt_at IS NULL AND CASE NEW.status
      WHEN 'APPLYING' THEN OLD.status = 'QUEUED'
      WHEN 'APPLIED' THEN OLD.status = 'APPLYING' AND NEW.lease_owner IS NULL AND NEW.error_code IS NULL
        AND NEW.error_message IS NULL AND NEW.applied_at BETWEEN now() AND clock_timestamp()
    END) IS NOT TRUE)
  EXECUTE FUNCTION rule_target_guard();

-- Claims lock targets first and their run last, so that the run is held no longer than its counters need and
-- batches of one run are claimed side by side. A verb that moves all targets of a run locks the run first. The
-- two orders would meet in a deadlock, so each passes one more lock before: claims together, a verb alone.
CREATE FUNCTION claims_lock(run uuid) RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$ SELECT hashtextextended(run::text, 0) $$;

-- Waits for the claims of a run that are being written, and keeps out others until the transaction ends.
CREATE FUNCTION hold_claims(run uuid) RETURNS void
LANGUAGE sql STRICT AS $$ SELECT pg_advisory_xact_lock(claims_lock(run)) $$;

-- Numbers the claims; the leases of each carry its number.
CREATE SEQUENCE "lease_epoch" AS integer CYCLE;
ALTER TABLE "rule_run" DROP COLUMN "claim_epoch";

-- Up to `most` targets of a run that may be claimed now, locked: first those that came back and are due, then
-- those that nobody has claimed yet, after the run's cursor. What somebody holds locked is passed over; none
-- while claims are held.
--
-- The planner must not choose here. It knows little of a run that is new, and prices other ways by its guess:
-- to walk along the primary key through the targets of other runs, or to read and sort the whole run. The
-- settings leave it what is in order already, and (run_id, id) as a row is in the order of one index alone.
CREATE FUNCTION lock_queued_targets(run uuid, after bigint, most integer) RETURNS bigint[]
LANGUAGE plpgsql SET enable_sort = off SET enable_incremental_sort = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
  due bigint[];
BEGIN
  IF NOT pg_try_advisory_xact_lock_shared(claims_lock(run)) THEN
    RETURN '{}';
  END IF;
  due := ARRAY(
    SELECT id FROM rule_target WHERE run_id = run AND next_attempt_at <= clock_timestamp() AND status = 'QUEUED'
    ORDER BY next_attempt_at LIMIT most FOR UPDATE SKIP LOCKED);
  RETURN due || ARRAY(
    SELECT id FROM rule_target
    WHERE (run_id, id) > (run, after) AND run_id <= run AND status = 'QUEUED' AND next_attempt_at IS NULL
    ORDER BY run_id, id LIMIT most - cardinality(due) FOR UPDATE SKIP LOCKED);
END
$$;

-- Room for three versions of each target in its page: queued, being applied, applied. A claim or a settle stays
-- heap-only then, also when somebody's snapshot keeps the older versions from being cleared away meanwhile.
ALTER TABLE "rule_target" SET (fillfactor = 33);
