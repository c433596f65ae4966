-- Runs that somebody else drives may be driven by the columns that other systems know these tables by, which have no
-- status of a run: what such a write says about it is taken as the steps that the machines allow, each with its line
-- in the ledger. Runs of a source of ours keep to one step at a time.

CREATE FUNCTION is_external_run(p_run_id uuid) RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT EXISTS (SELECT FROM run_metadata run JOIN source ON source.id = run.source_id
                 WHERE run.run_id = p_run_id AND source.kind = 'external')
$$;

-- --------------------------------------------------------------------------------- the end of a run

-- completed_at alone says that the run is complete.
CREATE FUNCTION pipeline_run_over() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
  former text := OLD.status;
  next text;
BEGIN
  IF NOT EXISTS (SELECT FROM source WHERE id = NEW.source_id AND kind = 'external') THEN
    RETURN NEW;
  END IF;
  LOOP
    next := CASE former
      WHEN 'CREATED' THEN 'WORKERS_RUNNING'
      WHEN 'CONSOLIDATION_SKIPPED' THEN 'FAILED'
      WHEN 'CONSOLIDATING' THEN 'COMPLETED'
      ELSE 'CONSOLIDATING'
    END;
    IF state_event('pipeline_run', former, next) IS NULL THEN
      PERFORM refuse_transition('pipeline_run', OLD.status, 'COMPLETED');
    END IF;
    NEW.last_seq := NEW.last_seq + 1;
    -- The line of the last step is the statement's, as of any other.
    EXIT WHEN next = 'COMPLETED';
    PERFORM append_transition_line(
      'PIPELINE', NEW.run_id, NEW.last_seq, NEW.tenant_id, 'pipeline_run', former, next, NULL);
    former := next;
  END LOOP;
  NEW.status := next;
  NEW.status_from := former;
  NEW.error := NULL;
  NEW.completed_at := greatest(NEW.started_at, NEW.completed_at);
  NEW.finished_at := greatest(NEW.started_at, clock_timestamp());
  RETURN NEW;
END
$$;

-- By its name after run_metadata_guard, which knows single steps only, and before run_metadata_pruned.
CREATE TRIGGER run_metadata_over BEFORE UPDATE OF completed_at ON run_metadata
  FOR EACH ROW WHEN (OLD.completed_at IS NULL AND NEW.completed_at IS NOT NULL AND NEW.status = OLD.status)
  EXECUTE FUNCTION pipeline_run_over();

-- -------------------------------------------------------------------------------------- partitions

-- The states that a partition goes through in one statement, the first and the last included. A queue delivers again
-- what has failed, and the worker that takes it up says so, or only how it ended.
CREATE FUNCTION partition_path(from_state text, to_state text) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE
    WHEN from_state = 'failed' AND to_state = 'running' THEN ARRAY['failed', 'pending', 'running']
    WHEN from_state = 'failed' AND to_state = 'completed' THEN ARRAY['failed', 'pending', 'running', 'completed']
    ELSE ARRAY[from_state, to_state]
  END
$$;

CREATE OR REPLACE FUNCTION partition_guard() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.status = OLD.status THEN
    NEW.status_from := NULL;
    RETURN NEW;
  END IF;
  IF state_event('partition', OLD.status, NEW.status) IS NULL
    AND NOT (cardinality(partition_path(OLD.status, NEW.status)) > 2 AND is_external_run(NEW.run_id)) THEN
    PERFORM refuse_transition('partition', OLD.status, NEW.status);
  END IF;
  NEW.status_from := OLD.status;
  IF NEW.status = 'running' THEN
    NEW.started_at := coalesce(NEW.started_at, clock_timestamp());
  ELSE
    NEW.next_attempt_at := NULL;
    NEW.lease_owner := NULL;
    NEW.lease_until := NULL;
    NEW.lease_epoch := NULL;
  END IF;
  IF NEW.status <> 'failed' THEN
    NEW.error_message := NULL;
  END IF;
  IF NEW.status = 'pending' THEN
    NEW.attempts := 0;
  END IF;
  NEW.completed_at := CASE WHEN NEW.status IN ('completed', 'failed') THEN clock_timestamp() END;
  RETURN NEW;
END
$$;

CREATE OR REPLACE FUNCTION partition_record() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
  moved record;
  run record;
  actor text := ledger_actor();
  at timestamptz := clock_timestamp();
BEGIN
  FOR moved IN
    SELECT run_id, sum(cardinality(partition_path(status_from, status)) - 1)::integer AS n,
      (count(*) FILTER (WHERE status = 'completed'))::integer AS completed,
      (count(*) FILTER (WHERE status = 'failed') - count(*) FILTER (WHERE status_from = 'failed'))::integer AS failed
    FROM changed WHERE status_from IS NOT NULL GROUP BY run_id ORDER BY run_id
  LOOP
    UPDATE run_metadata SET
      last_seq = last_seq + moved.n,
      completed_workers = completed_workers + moved.completed,
      failed_workers = failed_workers + moved.failed
    WHERE run_id = moved.run_id
    RETURNING run_id, tenant_id, last_seq INTO run;

    INSERT INTO run_event (run_id, seq, tenant_id, run_kind, type, level, message, payload, actor, created_at)
    SELECT
      run.run_id, run.last_seq - moved.n + row_number() OVER (ORDER BY line.partition_id, line.step), run.tenant_id,
      'PIPELINE', 'partition.' || line.event, ledger_level(line.event),
      coalesce(line.error_message, line.former || ' → ' || line.next),
      jsonb_strip_nulls(jsonb_build_object('partitionId', line.partition_id, 'from', line.former,
        'to', line.next, 'attempt', line.attempts, 'error', line.error_message)),
      actor, at
    FROM (
      SELECT c.partition_id, c.attempts, c.error_message, step, states[step] AS former, states[step + 1] AS next,
        state_event('partition', states[step], states[step + 1]) AS event
      FROM changed c CROSS JOIN LATERAL partition_path(c.status_from, c.status) AS path (states)
        CROSS JOIN LATERAL generate_series(1, cardinality(states) - 1) AS step
      WHERE c.run_id = moved.run_id AND c.status_from IS NOT NULL
    ) line;
    PERFORM ring_bell('PIPELINE', run.run_id, run.last_seq, run.tenant_id);
  END LOOP;
  RETURN NULL;
END
$$;

-- A worker of somebody else's inserts its row when it begins to read, as running, and is answered that row: it is
-- kept as it came, and its step from pending is told like any other.
CREATE OR REPLACE FUNCTION partition_born_running() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  NEW.status_from := CASE WHEN NEW.status = 'running' AND is_external_run(NEW.run_id) THEN 'pending' END;
  RETURN NEW;
END
$$;

CREATE OR REPLACE FUNCTION partition_begin() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE run_metadata SET status = 'WORKERS_RUNNING' WHERE run_id = NEW.run_id AND status = 'CREATED';
  RETURN NULL;
END
$$;

DROP TRIGGER worker_runs_begun ON worker_runs;
DROP TRIGGER worker_runs_begin ON worker_runs;
DROP TRIGGER worker_runs_birth ON worker_runs;
-- In this order, by their names.
CREATE TRIGGER worker_runs_begun BEFORE INSERT ON worker_runs
  FOR EACH ROW WHEN (NEW.status = 'running' OR NEW.status_from IS NOT NULL)
  EXECUTE FUNCTION partition_born_running();
CREATE TRIGGER worker_runs_birth BEFORE INSERT ON worker_runs
  FOR EACH ROW WHEN (NEW.status_from IS NULL) EXECUTE FUNCTION guard_birth('partition');
CREATE TRIGGER worker_runs_begin AFTER INSERT ON worker_runs
  FOR EACH ROW WHEN (NEW.status_from = 'pending') EXECUTE FUNCTION partition_begin();
CREATE TRIGGER worker_runs_born AFTER INSERT ON worker_runs
  REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION partition_record();
