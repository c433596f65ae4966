-- Functions that name an actor, or that delete, set what says so by themselves and put it back, so that the owner of
-- the database can make them: FUNCTION … SET of a setting that is ours takes a superuser. After an error nothing needs
-- to be put back, since the transaction, or the savepoint, takes the setting with it.

-- Sets a setting for the rest of the transaction, and answers what it was.
CREATE FUNCTION swap_setting(p_name text, p_value text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  former text := coalesce(current_setting(p_name, true), '');
BEGIN
  PERFORM set_config(p_name, coalesce(p_value, ''), true);
  RETURN former;
END
$$;

-- ------------------------------------------------------------------------------------------- ops runs

-- What the caller has set as runledger.actor is still not believed.
CREATE OR REPLACE FUNCTION ops.queue_run(
  p_project_id text, p_env text, p_git_sha text, p_git_ref text, p_metadata jsonb DEFAULT '{}'::jsonb,
  p_idempotency_key text DEFAULT NULL, p_priority integer DEFAULT 0, p_on_stale text DEFAULT 'cancel',
  p_max_attempts integer DEFAULT 3
) RETURNS TABLE (run_id text, status text, queued_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  former text := swap_setting('runledger.actor', '');
BEGIN
  RETURN QUERY
    SELECT 'run-' || run.id, run.status, run.queued_at
    FROM ops_run_queue(ops.current_tenant(), NULL, p_project_id, p_env, p_git_sha, p_git_ref, p_metadata,
      p_idempotency_key, p_priority, p_on_stale, p_max_attempts, false) run;
  PERFORM swap_setting('runledger.actor', former);
END
$$;

CREATE OR REPLACE FUNCTION ops.claim_next_run(p_worker_id text, p_project_id text DEFAULT NULL, p_env text DEFAULT NULL)
RETURNS TABLE (run_id text, project_id text, env_id text, git_sha text, git_ref text, metadata jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  former text := swap_setting('runledger.actor', p_worker_id);
BEGIN
  RETURN QUERY
    SELECT 'run-' || run.id, run.project_id, run.env, run.git_sha, run.git_ref, run.metadata
    FROM ops_run_claim(ops.current_tenant(), p_worker_id, p_project_id, p_env) run;
  PERFORM swap_setting('runledger.actor', former);
END
$$;

CREATE OR REPLACE FUNCTION ops.append_event(
  p_run_id text, p_level text, p_message text, p_payload jsonb DEFAULT '{}'::jsonb, p_worker_id text DEFAULT NULL,
  p_idempotency_key text DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  former text := swap_setting('runledger.actor', p_worker_id);
  line run_event;
BEGIN
  line := ops_run_append(ops.current_tenant(), p_run_id, p_level, p_message, p_payload, p_worker_id, NULL, p_idempotency_key);
  PERFORM swap_setting('runledger.actor', former);
  RETURN 'run-' || line.run_id || ':' || line.seq;
END
$$;

CREATE OR REPLACE FUNCTION ops.finish_run(
  p_run_id text, p_status text, p_metadata jsonb DEFAULT '{}'::jsonb, p_worker_id text DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  former text := swap_setting('runledger.actor', p_worker_id);
  run ops_run;
BEGIN
  run := ops_run_finish(ops.current_tenant(), p_run_id, p_status, p_metadata, p_worker_id, NULL);
  PERFORM swap_setting('runledger.actor', former);
  RETURN run.status;
END
$$;

-- ------------------------------------------------------------------------------------------ retention

-- Deletes up to `p_most` rows of a run that is marked, and says whether that was the last of it; answers null
-- when there is nothing to do, or somebody else is at it.
CREATE OR REPLACE FUNCTION retention_prune(p_run uuid, p_most integer, OUT removed integer, OUT done boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  former text;
  work retention_work;
  steps text[];
  step text;
  before integer;
BEGIN
  SELECT * INTO work FROM retention_work WHERE run_id = p_run FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN; END IF;
  former := swap_setting('runledger.pruning', 'on');
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
  PERFORM swap_setting('runledger.pruning', former);
END
$$;
