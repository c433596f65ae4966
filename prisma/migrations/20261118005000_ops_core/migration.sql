-- What may be done to an ops run, once for everybody: the GraphQL API and the SQL surface (schema ops) call
-- these functions. They run with the caller's rights and take the tenant as given: only the owner of the
-- tables gets anywhere with them. Transitions, ledger lines and bells are the work of the triggers.
--
-- Refusals, beside those of the guards; DETAIL is JSON for a program:
--   RL004  the worker does not hold the claim (any more)
--   RL005  the input is not valid
--   RL006  there is no such run
--   RL007  the idempotency key was used with another request
--   RL008  a text or a JSON value is too long

CREATE FUNCTION refuse(code text, message text, detail jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message, DETAIL = detail::text;
END
$$;

-- ------------------------------------------------------------------------------------------- input

CREATE FUNCTION check_ops_label(field text, value text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF value IS NULL OR btrim(value) = '' OR length(value) > 255 OR value ~ '[[:cntrl:]]' THEN
    PERFORM refuse('RL005', format('%s must have 1 to 255 characters, none of them a control character.', field),
      jsonb_build_object('field', field));
  END IF;
END
$$;

-- A worker's id stands in the ledger as the actor: it must not pass for the system, a key or a database role.
CREATE FUNCTION check_ops_worker(worker_id text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM check_ops_label('workerId', worker_id);
  IF worker_id ~ '^(system$|webhook$|key:|sql:)' THEN
    PERFORM refuse('RL005', format('"%s" cannot be the id of a worker: it names somebody else.', worker_id),
      jsonb_build_object('field', 'workerId'));
  END IF;
END
$$;

CREATE FUNCTION check_ops_size(field text, bytes integer, most integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF bytes > most THEN
    PERFORM refuse('RL008', format('%s has %s bytes; at most %s are taken.', field, bytes, most),
      jsonb_build_object('field', field, 'limit', most, 'given', bytes));
  END IF;
END
$$;

CREATE FUNCTION check_ops_object(field text, value jsonb, most integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF jsonb_typeof(value) <> 'object' THEN
    PERFORM refuse('RL005', format('%s must be a JSON object.', field), jsonb_build_object('field', field));
  END IF;
  PERFORM check_ops_size(field, octet_length(value::text), most);
END
$$;

-- A word out of a few; answers it as the database spells it.
CREATE FUNCTION check_ops_word(field text, value text, words text[]) RETURNS text
LANGUAGE plpgsql AS $$
BEGIN
  IF value IS NULL OR lower(value) <> ALL (words) THEN
    PERFORM refuse('RL005', format('%s must be one of %s, not %s.', field, array_to_string(words, ', '),
      coalesce(left(value, 50), 'null')), jsonb_build_object('field', field));
  END IF;
  RETURN lower(value);
END
$$;

-- -------------------------------------------------------------------------------------------- runs

-- Runs are known by `run-` and the row's id, everywhere outside of the tables.
CREATE FUNCTION ops_run_uuid(p_run_id text) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE
    WHEN p_run_id ~ '^run-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN substr(p_run_id, 5)::uuid
  END
$$;

-- So that ops.runs finds a run by its run_id.
CREATE INDEX ops_run_run_id_idx ON ops_run (('run-' || id::text));

-- Locks a run for the worker that holds its claim. A worker that is not named is taken at its word; an
-- attempt, when named, tells two claims by one worker id apart.
CREATE FUNCTION ops_run_hold(p_tenant_id text, p_run_id text, p_worker_id text, p_attempt integer) RETURNS ops_run
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

-- Refuses like the guard does, and says what would be allowed instead.
CREATE FUNCTION refuse_ops_event(run ops_run, event text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  allowed text[] := ARRAY(
    SELECT t.event FROM state_transition t
    WHERE t.machine = 'ops_run' AND t.from_state = run.status ORDER BY t.event);
BEGIN
  PERFORM refuse('RL001', format('Ops run: cannot %s while %s (%s)', event, run.status,
      coalesce('allowed now: ' || nullif(array_to_string(allowed, ', '), ''), 'it is final')),
    jsonb_build_object('machine', 'ops_run', 'event', event, 'from', upper(run.status), 'allowed', allowed));
END
$$;

-- Queues a run, or answers the one that was queued under the same key. `p_strict` refuses another request
-- under a key that was used.
CREATE FUNCTION ops_run_queue(
  p_tenant_id text, p_id uuid, p_project_id text, p_env text, p_git_sha text, p_git_ref text, p_metadata jsonb,
  p_idempotency_key text, p_priority integer, p_on_stale text, p_max_attempts integer, p_strict boolean
) RETURNS ops_run
LANGUAGE plpgsql AS $$
DECLARE
  run ops_run;
  given jsonb := coalesce(p_metadata, '{}');
  hash text;
BEGIN
  PERFORM check_ops_label('projectId', p_project_id);
  PERFORM check_ops_label('env', p_env);
  IF p_git_sha IS NOT NULL THEN PERFORM check_ops_label('gitSha', p_git_sha); END IF;
  IF p_git_ref IS NOT NULL THEN PERFORM check_ops_label('gitRef', p_git_ref); END IF;
  IF p_idempotency_key IS NOT NULL THEN PERFORM check_ops_label('idempotencyKey', p_idempotency_key); END IF;
  PERFORM check_ops_object('metadata', given, 262144);
  PERFORM check_ops_word('onStale', p_on_stale, ARRAY['cancel', 'requeue']);
  IF p_max_attempts NOT BETWEEN 1 AND 100 THEN
    PERFORM refuse('RL005', 'maxAttempts must be from 1 to 100.', '{"field": "maxAttempts"}');
  END IF;

  hash := encode(sha256(convert_to(jsonb_build_array(p_project_id, p_env, p_git_sha, p_git_ref, given,
    p_priority, lower(p_on_stale), p_max_attempts)::text, 'UTF8')), 'hex');
  -- A concurrent first use of the key is waited for.
  INSERT INTO ops_run (id, tenant_id, project_id, env, git_sha, git_ref, metadata, idempotency_key, request_hash,
    priority, on_stale, max_attempts)
  VALUES (coalesce(p_id, gen_random_uuid()), p_tenant_id, p_project_id, p_env, p_git_sha, p_git_ref, given,
    p_idempotency_key, hash, p_priority, lower(p_on_stale), p_max_attempts)
  ON CONFLICT (tenant_id, idempotency_key) DO NOTHING
  RETURNING * INTO run;
  IF FOUND THEN
    RETURN run;
  END IF;
  SELECT * INTO run FROM ops_run WHERE tenant_id = p_tenant_id AND idempotency_key = p_idempotency_key;
  IF p_strict AND run.request_hash IS DISTINCT FROM hash THEN
    PERFORM refuse('RL007', 'This idempotencyKey was used with another input before.',
      jsonb_build_object('field', 'idempotencyKey', 'runId', 'run-' || run.id));
  END IF;
  RETURN run;
END
$$;

-- Claims the oldest queued run of the highest priority; no row when there is none. Two statements, since one
-- that serves both cases would have one plan, and workers of an environment of their own would walk through
-- everybody else's queue.
CREATE FUNCTION ops_run_claim(p_tenant_id text, p_worker_id text, p_project_id text, p_env text) RETURNS SETOF ops_run
LANGUAGE plpgsql AS $$
DECLARE
  next_id uuid;
BEGIN
  PERFORM check_ops_worker(p_worker_id);
  IF p_env IS NULL THEN
    SELECT id INTO next_id FROM ops_run
    WHERE tenant_id = p_tenant_id AND status = 'queued'
      AND (p_project_id IS NULL OR project_id = p_project_id)
      AND (available_at IS NULL OR available_at <= clock_timestamp())
    ORDER BY priority DESC, queued_at, id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED;
  ELSE
    SELECT id INTO next_id FROM ops_run
    WHERE tenant_id = p_tenant_id AND status = 'queued' AND env = p_env
      AND (p_project_id IS NULL OR project_id = p_project_id)
      AND (available_at IS NULL OR available_at <= clock_timestamp())
    ORDER BY priority DESC, queued_at, id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED;
  END IF;
  RETURN QUERY
    UPDATE ops_run SET status = 'claimed', claimed_by = p_worker_id WHERE id = next_id RETURNING *;
END
$$;

-- The line that an append repeats, or null: the same key, or else the same level and message within ten
-- seconds. What an earlier attempt said is no repetition. Looks at the newest lines alone, by the ledger's own
-- key, so that a long ledger costs nothing.
CREATE FUNCTION ops_run_repeated_seq(
  run ops_run, p_level event_level, p_message text, p_idempotency_key text
) RETURNS integer
LANGUAGE sql STABLE AS $$
  SELECT seq FROM run_event
  WHERE run_id = run.id AND seq > run.last_seq - 1000 AND type = 'log' AND created_at >= run.started_at
    AND CASE
      WHEN p_idempotency_key IS NOT NULL THEN payload ->> 'idempotency_key' = p_idempotency_key
      ELSE created_at > clock_timestamp() - interval '10 seconds' AND level = p_level AND message = p_message
    END
  ORDER BY seq DESC LIMIT 1
$$;

-- Appends a line to the ledger of a run that is being worked on; the first one starts the run.
CREATE FUNCTION ops_run_append(
  p_tenant_id text, p_run_id text, p_level text, p_message text, p_payload jsonb, p_worker_id text,
  p_attempt integer, p_idempotency_key text
) RETURNS run_event
LANGUAGE plpgsql AS $$
DECLARE
  run ops_run;
  line run_event;
  given jsonb := coalesce(p_payload, '{}');
  stated event_level := upper(check_ops_word('level', p_level, ARRAY['debug', 'info', 'warn', 'error']))::event_level;
  repeated integer;
BEGIN
  PERFORM check_ops_size('message', octet_length(p_message), 65536);
  PERFORM check_ops_object('payload', given, 65536);
  IF p_message IS NULL THEN
    PERFORM refuse('RL005', 'message must be given.', '{"field": "message"}');
  END IF;
  IF p_idempotency_key IS NOT NULL THEN
    PERFORM check_ops_label('idempotencyKey', p_idempotency_key);
    given := given || jsonb_build_object('idempotency_key', p_idempotency_key);
  END IF;

  run := ops_run_hold(p_tenant_id, p_run_id, p_worker_id, p_attempt);
  IF run.status NOT IN ('claimed', 'running') THEN
    PERFORM refuse_ops_event(run, 'append');
  END IF;
  IF run.status = 'claimed' THEN
    UPDATE ops_run SET status = 'running' WHERE id = run.id;
  ELSE
    repeated := ops_run_repeated_seq(run, stated, p_message, p_idempotency_key);
  END IF;

  UPDATE ops_run
  SET heartbeat_at = clock_timestamp(), last_seq = last_seq + CASE WHEN repeated IS NULL THEN 1 ELSE 0 END
  WHERE id = run.id
  RETURNING * INTO run;
  IF repeated IS NULL THEN
    PERFORM append_run_line('OPS', run.id, run.last_seq, run.tenant_id, 'log', stated, p_message, given);
  END IF;
  SELECT * INTO line FROM run_event WHERE run_id = run.id AND seq = coalesce(repeated, run.last_seq);
  RETURN line;
END
$$;

-- The worker lives. Answers the run as it is, from which the worker learns that it was cancelled.
CREATE FUNCTION ops_run_heartbeat(p_tenant_id text, p_run_id text, p_worker_id text, p_attempt integer) RETURNS ops_run
LANGUAGE plpgsql AS $$
DECLARE
  run ops_run;
BEGIN
  PERFORM check_ops_worker(p_worker_id);
  run := ops_run_hold(p_tenant_id, p_run_id, p_worker_id, p_attempt);
  IF run.status IN ('claimed', 'running') THEN
    UPDATE ops_run SET heartbeat_at = clock_timestamp() WHERE id = run.id RETURNING * INTO run;
  END IF;
  RETURN run;
END
$$;

-- Ends a run. One that was claimed and never said a word has run all the same: it starts and ends here.
CREATE FUNCTION ops_run_finish(
  p_tenant_id text, p_run_id text, p_status text, p_metadata jsonb, p_worker_id text, p_attempt integer
) RETURNS ops_run
LANGUAGE plpgsql AS $$
DECLARE
  run ops_run;
  given jsonb := coalesce(p_metadata, '{}');
  outcome text := check_ops_word('status', p_status, ARRAY['success', 'failed', 'cancelled']);
BEGIN
  PERFORM check_ops_object('metadata', given, 262144);
  run := ops_run_hold(p_tenant_id, p_run_id, p_worker_id, p_attempt);
  IF run.status = 'claimed' AND outcome <> 'cancelled' THEN
    UPDATE ops_run SET status = 'running' WHERE id = run.id RETURNING * INTO run;
  END IF;
  IF state_event('ops_run', run.status, outcome) IS NULL THEN
    PERFORM refuse_ops_event(run, CASE outcome WHEN 'success' THEN 'succeed' WHEN 'failed' THEN 'fail' ELSE 'cancel' END);
  END IF;
  UPDATE ops_run SET status = outcome, metadata = metadata || given WHERE id = run.id RETURNING * INTO run;
  RETURN run;
END
$$;

-- What a worker reports of a run that it held and lost, or that was cancelled under it: once, as a line.
CREATE FUNCTION ops_run_note_late_result(
  p_tenant_id text, p_run_id text, p_worker_id text, p_status text, p_metadata jsonb
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  run ops_run := ops_run_hold(p_tenant_id, p_run_id, NULL, NULL);
  claims integer;
  notes integer;
BEGIN
  SELECT count(*) FILTER (WHERE type = 'ops_run.claim'), count(*) FILTER (WHERE type = 'ops_run.late_result')
  INTO claims, notes
  FROM run_event WHERE run_id = run.id AND payload ->> 'worker_id' = p_worker_id;
  IF notes >= claims OR run.status IN ('success', 'failed') AND run.claimed_by = p_worker_id THEN
    RETURN;
  END IF;
  UPDATE ops_run SET last_seq = last_seq + 1 WHERE id = run.id RETURNING * INTO run;
  PERFORM append_run_line('OPS', run.id, run.last_seq, run.tenant_id, 'ops_run.late_result', 'WARN',
    format('%s reported %s after it had lost the run', p_worker_id, lower(p_status)),
    jsonb_build_object('worker_id', p_worker_id, 'result', lower(p_status), 'metadata', coalesce(p_metadata, '{}')));
END
$$;
