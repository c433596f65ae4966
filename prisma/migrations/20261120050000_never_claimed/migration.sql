-- Nobody has lost the claim of an ops run that was never claimed: what a named worker may not do with it is for
-- its state to refuse (RL001, with what is allowed), as for a worker that is not named.
CREATE OR REPLACE FUNCTION ops_run_hold(p_tenant_id text, p_run_id text, p_worker_id text, p_attempt integer) RETURNS ops_run
LANGUAGE plpgsql AS $$
DECLARE
  run ops_run;
BEGIN
  SELECT * INTO run FROM ops_run
  WHERE id = ops_run_uuid(p_run_id) AND tenant_id = p_tenant_id
  FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    PERFORM refuse('RL006', format('Ops run %s was not found.', left(p_run_id, 100)), '{"field": "runId"}');
  END IF;
  IF run.attempts = 0 AND run.claimed_by IS NULL THEN
    RETURN run;
  END IF;
  IF p_worker_id IS DISTINCT FROM run.claimed_by AND p_worker_id IS NOT NULL THEN
    PERFORM refuse('RL004', format('%s does not hold the claim of %s: %s.', left(p_worker_id, 255), p_run_id,
        coalesce(run.claimed_by || ' does', 'nobody does')),
      jsonb_build_object('status', upper(run.status), 'claimedBy', run.claimed_by));
  END IF;
  IF p_attempt <> run.attempts THEN
    PERFORM refuse('RL004', format('Attempt %s of %s is over: attempt %s has begun.', p_attempt, p_run_id, run.attempts),
      jsonb_build_object('status', upper(run.status), 'claimedBy', run.claimed_by));
  END IF;
  RETURN run;
END
$$;

CREATE OR REPLACE FUNCTION ops_run_heartbeat(p_tenant_id text, p_run_id text, p_worker_id text, p_attempt integer) RETURNS ops_run
LANGUAGE plpgsql AS $$
DECLARE
  run ops_run;
BEGIN
  PERFORM check_ops_worker(p_worker_id);
  run := ops_run_hold(p_tenant_id, p_run_id, p_worker_id, p_attempt);
  IF run.attempts = 0 AND run.claimed_by IS NULL THEN
    PERFORM refuse_ops_event(run, 'heartbeat');
  END IF;
  IF run.status IN ('claimed', 'running') THEN
    UPDATE ops_run SET heartbeat_at = clock_timestamp() WHERE id = run.id RETURNING * INTO run;
  END IF;
  RETURN run;
END
$$;
