-- The guards: whoever writes (this server, psql, another tool), a status changes only as its machine allows,
-- every change has its ledger line, counters are true, and listeners hear of it.
--
-- Per machine table:
--   BEFORE INSERT row      the row is born in the machine's initial state
--   BEFORE UPDATE row      the pair (from, to) is allowed; what follows from it is stamped (times, leases)
--   AFTER … statement      ledger lines, counters and one bell per run, for all rows of the statement at once
--
-- SQLSTATEs of our own, so that callers need not read messages:
--   RL001  a change of status that the machine does not allow
--   RL002  a row that is not born in the initial state, or into a run that takes no more
--   RL003  a change of what is append-only
--   RL004  a claim that the caller does not hold (any more)

-- ---------------------------------------------------------------------------------------- refusals

CREATE FUNCTION refuse_transition(machine text, from_state text, to_state text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING
    ERRCODE = 'RL001',
    MESSAGE = format('%s: no transition from %s to %s', machine, from_state, to_state),
    DETAIL = json_build_object('machine', machine, 'from', from_state, 'to', to_state)::text,
    HINT = 'SELECT * FROM state_transition lists what is allowed.';
END
$$;

CREATE FUNCTION guard_birth() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.status IS DISTINCT FROM state_initial(TG_ARGV[0]) THEN
    RAISE EXCEPTION USING
      ERRCODE = 'RL002',
      MESSAGE = format('%s: a new row is %s, not %s', TG_ARGV[0], state_initial(TG_ARGV[0]), NEW.status);
  END IF;
  RETURN NEW;
END
$$;

CREATE FUNCTION refuse_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING
    ERRCODE = 'RL003',
    MESSAGE = format('%s is append-only: %s is refused', TG_TABLE_NAME, TG_OP);
END
$$;

-- ------------------------------------------------------------------------------------------ ledger

-- Who the ledger names: the application says so once per transaction; anybody else goes by their role.
CREATE FUNCTION ledger_actor() RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT coalesce(nullif(current_setting('runledger.actor', true), ''), 'sql:' || session_user)
$$;

CREATE FUNCTION ledger_level(event text) RETURNS event_level
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT (CASE
    WHEN event IN ('fail', 'exhaust') THEN 'ERROR'
    WHEN event IN ('retry', 'complete_partially', 'skip_consolidation') THEN 'WARN'
    ELSE 'INFO'
  END)::event_level
$$;

-- The doorbell: says which run has news and up to where, never what.
CREATE FUNCTION ring_bell(kind run_kind, run_id uuid, seq integer, tenant_id text) RETURNS void
LANGUAGE sql AS $$
  SELECT pg_notify('runledger', json_build_object('kind', kind, 'id', run_id, 'seq', seq, 'tenant', tenant_id)::text)
$$;

-- A line about the run itself. `seq` was taken under the run's row lock by the caller.
CREATE FUNCTION append_run_line(
  kind run_kind, run_id uuid, seq integer, tenant_id text, type text, level event_level, message text, payload jsonb
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO run_event (run_id, seq, tenant_id, run_kind, type, level, message, payload, actor, created_at)
  VALUES (run_id, seq, tenant_id, kind, type, level, message, payload, ledger_actor(), clock_timestamp());
  PERFORM ring_bell(kind, run_id, seq, tenant_id);
END
$$;

CREATE FUNCTION append_transition_line(
  kind run_kind, run_id uuid, seq integer, tenant_id text, machine text, from_state text, to_state text, error text
) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  event text := state_event(machine, from_state, to_state);
BEGIN
  PERFORM append_run_line(
    kind, run_id, seq, tenant_id, machine || '.' || event, ledger_level(event),
    coalesce(error, from_state || ' → ' || to_state),
    jsonb_strip_nulls(jsonb_build_object('from', from_state, 'to', to_state, 'error', error)));
END
$$;

CREATE TRIGGER run_event_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON run_event
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- --------------------------------------------------------------------------------------- rule runs

CREATE FUNCTION rule_run_guard() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
  -- Not now(): a transaction may have begun before the one that set the earlier stamp committed.
  at timestamptz := clock_timestamp();
BEGIN
  IF NEW.status = OLD.status THEN
    NEW.status_from := NULL;
    RETURN NEW;
  END IF;
  IF state_event('rule_run', OLD.status, NEW.status) IS NULL THEN
    PERFORM refuse_transition('rule_run', OLD.status, NEW.status);
  END IF;
  NEW.status_from := OLD.status;
  NEW.last_seq := NEW.last_seq + 1;
  IF NEW.status = 'QUEUED' THEN
    NEW.queued_at := greatest(NEW.created_at, at);
  ELSIF NEW.status = 'APPLYING' THEN
    NEW.started_at := coalesce(NEW.started_at, greatest(NEW.queued_at, at));
    NEW.finished_at := NULL;
    NEW.error := NULL;
  ELSE
    NEW.finished_at := greatest(NEW.started_at, NEW.queued_at, at);
    NEW.next_claim_at := NULL;
    NEW.paused := false;
    NEW.rolling_back := false;
  END IF;
  RETURN NEW;
END
$$;

CREATE FUNCTION rule_run_record() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
  run record;
BEGIN
  IF TG_OP = 'INSERT' THEN
    FOR run IN SELECT * FROM changed LOOP
      PERFORM append_run_line('RULE', run.id, run.last_seq, run.tenant_id, 'rule_run.create', 'INFO', 'created',
        jsonb_build_object('to', run.status, 'correlationId', run.correlation_id));
    END LOOP;
    RETURN NULL;
  END IF;
  FOR run IN SELECT * FROM changed WHERE status_from IS NOT NULL LOOP
    PERFORM append_transition_line(
      'RULE', run.id, run.last_seq, run.tenant_id, 'rule_run', run.status_from, run.status, run.error);
  END LOOP;
  RETURN NULL;
END
$$;

CREATE FUNCTION begin_run_ledger() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  NEW.last_seq := 1;
  RETURN NEW;
END
$$;

CREATE TRIGGER rule_run_birth BEFORE INSERT ON rule_run
  FOR EACH ROW EXECUTE FUNCTION guard_birth('rule_run');
CREATE TRIGGER rule_run_first_seq BEFORE INSERT ON rule_run
  FOR EACH ROW EXECUTE FUNCTION begin_run_ledger();
CREATE TRIGGER rule_run_guard BEFORE UPDATE ON rule_run
  FOR EACH ROW WHEN (NEW.status IS DISTINCT FROM OLD.status OR NEW.status_from IS NOT NULL)
  EXECUTE FUNCTION rule_run_guard();
CREATE TRIGGER rule_run_created AFTER INSERT ON rule_run
  REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION rule_run_record();
CREATE TRIGGER rule_run_moved AFTER UPDATE ON rule_run
  REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION rule_run_record();
CREATE TRIGGER rule_run_kept BEFORE DELETE OR TRUNCATE ON rule_run
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

ALTER TABLE rule_run
  ADD CONSTRAINT rule_run_counts CHECK (
    least(preview_count, queued_count, applying_count, applied_count, failed_count, rolled_back_count, cancelled_count) >= 0
    AND total_count = preview_count + queued_count + applying_count + applied_count + failed_count
      + rolled_back_count + cancelled_count),
  ADD CONSTRAINT rule_run_times CHECK (
    (status <> 'PREVIEW' OR queued_at IS NULL)
    AND (status IN ('PREVIEW', 'CANCELLED', 'ROLLED_BACK') OR queued_at IS NOT NULL)
    AND (status NOT IN ('APPLYING', 'APPLIED', 'PARTIAL', 'FAILED') OR started_at IS NOT NULL)
    AND (status IN ('PREVIEW', 'QUEUED', 'APPLYING')) = (finished_at IS NULL)
    AND coalesce(queued_at <= started_at, true)
    AND coalesce(started_at <= finished_at, true)),
  -- Rolling back takes targets of an applied run out of APPLIED before the run itself follows.
  ADD CONSTRAINT rule_run_applied CHECK (status <> 'APPLIED' OR applied_count + rolled_back_count = total_count),
  ADD CONSTRAINT rule_run_rollback CHECK (
    (rollback_on_conflict IS NULL OR rollback_on_conflict IN ('SKIP', 'OVERWRITE'))
    AND (NOT rolling_back OR (
      status IN ('APPLIED', 'PARTIAL', 'CANCELLED') AND rollback_asked_at IS NOT NULL AND rollback_on_conflict IS NOT NULL)));

-- ------------------------------------------------------------------------------------ rule targets

CREATE FUNCTION rule_target_guard() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.status = OLD.status THEN
    NEW.status_from := NULL;
    RETURN NEW;
  END IF;
  IF state_event('rule_target', OLD.status, NEW.status) IS NULL THEN
    PERFORM refuse_transition('rule_target', OLD.status, NEW.status);
  END IF;
  NEW.status_from := OLD.status;
  IF OLD.status = 'APPLYING' OR OLD.status = 'APPLIED' THEN
    NEW.lease_owner := NULL;
    NEW.lease_until := NULL;
    NEW.lease_epoch := NULL;
  END IF;
  IF NEW.status <> 'QUEUED' THEN
    NEW.next_attempt_at := NULL;
  ELSIF OLD.status <> 'PREVIEW' THEN
    -- It comes back behind the run's claim cursor: only this column leads to it again.
    NEW.next_attempt_at := coalesce(NEW.next_attempt_at, clock_timestamp());
  END IF;
  IF NEW.status = 'APPLIED' THEN
    NEW.applied_at := clock_timestamp();
    NEW.error_code := NULL;
    NEW.error_message := NULL;
  ELSIF NEW.status = 'ROLLED_BACK' THEN
    NEW.rolled_back_at := clock_timestamp();
    NEW.error_code := NULL;
    NEW.error_message := NULL;
  END IF;
  RETURN NEW;
END
$$;

-- New targets: counted, with one line for all of them. Only a preview takes any.
CREATE FUNCTION rule_target_add() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
  added record;
  run record;
BEGIN
  FOR added IN SELECT run_id, count(*)::integer AS n FROM changed GROUP BY run_id ORDER BY run_id LOOP
    UPDATE rule_run
    SET last_seq = last_seq + 1, total_count = total_count + added.n, preview_count = preview_count + added.n
    WHERE id = added.run_id AND status = 'PREVIEW'
    RETURNING * INTO run;
    IF NOT FOUND THEN
      SELECT * INTO run FROM rule_run WHERE id = added.run_id;
      RAISE EXCEPTION USING
        ERRCODE = 'RL002',
        MESSAGE = format('rule_run %s is %s: only a PREVIEW run takes targets', run.id, run.status);
    END IF;
    PERFORM append_run_line('RULE', run.id, run.last_seq, run.tenant_id, 'rule_run.add_targets', 'INFO',
      format('%s targets added', added.n), jsonb_build_object('count', added.n));
  END LOOP;
  RETURN NULL;
END
$$;

CREATE FUNCTION rule_target_record() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
  moved record;
  run record;
  actor text := ledger_actor();
  at timestamptz := clock_timestamp();
BEGIN
  FOR moved IN
    SELECT run_id, count(*)::integer AS n,
      (count(*) FILTER (WHERE status = 'QUEUED') - count(*) FILTER (WHERE status_from = 'QUEUED'))::integer AS queued,
      (count(*) FILTER (WHERE status = 'APPLYING') - count(*) FILTER (WHERE status_from = 'APPLYING'))::integer AS applying,
      (count(*) FILTER (WHERE status = 'APPLIED') - count(*) FILTER (WHERE status_from = 'APPLIED'))::integer AS applied,
      (count(*) FILTER (WHERE status = 'FAILED') - count(*) FILTER (WHERE status_from = 'FAILED'))::integer AS failed,
      (count(*) FILTER (WHERE status = 'ROLLED_BACK'))::integer AS rolled_back,
      (count(*) FILTER (WHERE status = 'CANCELLED'))::integer AS cancelled,
      (count(*) FILTER (WHERE status_from = 'PREVIEW'))::integer AS left_preview,
      min(coalesce(next_attempt_at, at)) FILTER (WHERE status = 'QUEUED') AS claimable_at,
      min(lease_until) FILTER (WHERE status = 'APPLYING') AS lease_until
    FROM changed WHERE status_from IS NOT NULL GROUP BY run_id ORDER BY run_id
  LOOP
    UPDATE rule_run SET
      last_seq = last_seq + moved.n,
      preview_count = preview_count - moved.left_preview,
      queued_count = queued_count + moved.queued,
      applying_count = applying_count + moved.applying,
      applied_count = applied_count + moved.applied,
      failed_count = failed_count + moved.failed,
      rolled_back_count = rolled_back_count + moved.rolled_back,
      cancelled_count = cancelled_count + moved.cancelled,
      next_claim_at = least(next_claim_at, moved.claimable_at),
      lease_floor = least(lease_floor, moved.lease_until)
    WHERE id = moved.run_id
    RETURNING id, tenant_id, last_seq INTO run;

    INSERT INTO run_event
      (run_id, seq, tenant_id, run_kind, type, level, message, payload, actor, target_id, created_at)
    SELECT
      run.id, run.last_seq - moved.n + row_number() OVER (ORDER BY line.id), run.tenant_id, 'RULE',
      'rule_target.' || line.event, ledger_level(line.event), coalesce(line.error_message, line.move),
      line.payload, actor, line.id, at
    FROM (
      SELECT c.id, state_event('rule_target', c.status_from, c.status) AS event,
        CASE WHEN c.status IN ('QUEUED', 'FAILED') THEN c.error_message END AS error_message,
        c.status_from || ' → ' || c.status AS move,
        CASE WHEN c.status IN ('QUEUED', 'FAILED') AND c.error_code IS NOT NULL
          THEN jsonb_build_object('targetId', c.id::text, 'externalId', c.external_id, 'from', c.status_from,
            'to', c.status, 'attempt', c.attempts, 'error', jsonb_build_object('code', c.error_code, 'message', c.error_message))
          ELSE jsonb_build_object('targetId', c.id::text, 'externalId', c.external_id, 'from', c.status_from,
            'to', c.status, 'attempt', c.attempts)
        END AS payload
      FROM changed c WHERE c.run_id = moved.run_id AND c.status_from IS NOT NULL
    ) line;
    PERFORM ring_bell('RULE', run.id, run.last_seq, run.tenant_id);
  END LOOP;
  RETURN NULL;
END
$$;

CREATE TRIGGER rule_target_birth BEFORE INSERT ON rule_target
  FOR EACH ROW EXECUTE FUNCTION guard_birth('rule_target');
CREATE TRIGGER rule_target_guard BEFORE UPDATE ON rule_target
  FOR EACH ROW WHEN (NEW.status IS DISTINCT FROM OLD.status OR NEW.status_from IS NOT NULL)
  EXECUTE FUNCTION rule_target_guard();
CREATE TRIGGER rule_target_added AFTER INSERT ON rule_target
  REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION rule_target_add();
CREATE TRIGGER rule_target_moved AFTER UPDATE ON rule_target
  REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION rule_target_record();
CREATE TRIGGER rule_target_kept BEFORE DELETE OR TRUNCATE ON rule_target
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

ALTER TABLE rule_target
  ADD CONSTRAINT rule_target_amounts CHECK (before_amount >= 0 AND after_amount >= 0),
  ADD CONSTRAINT rule_target_attempts CHECK (attempts >= 0 AND lost_leases >= 0 AND rollback_attempts >= 0),
  -- A lease is whole or not there; what is being applied has one (what is being rolled back may).
  ADD CONSTRAINT rule_target_lease CHECK (
    num_nonnulls(lease_owner, lease_until, lease_epoch) = CASE WHEN lease_owner IS NULL THEN 0 ELSE 3 END
    AND (status <> 'APPLYING' OR lease_owner IS NOT NULL)
    AND (lease_owner IS NULL OR status IN ('APPLYING', 'APPLIED'))),
  -- A target that is applied waits only to be set back.
  ADD CONSTRAINT rule_target_waiting CHECK (next_attempt_at IS NULL OR status IN ('QUEUED', 'APPLIED')),
  ADD CONSTRAINT rule_target_applied CHECK (status NOT IN ('APPLIED', 'ROLLED_BACK') OR applied_at IS NOT NULL),
  ADD CONSTRAINT rule_target_rolled_back CHECK ((status = 'ROLLED_BACK') = (rolled_back_at IS NOT NULL));

-- ----------------------------------------------------------------------------------- pipeline runs

CREATE FUNCTION pipeline_run_guard() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
  at timestamptz := clock_timestamp();
BEGIN
  IF NEW.status = OLD.status THEN
    NEW.status_from := NULL;
    RETURN NEW;
  END IF;
  IF state_event('pipeline_run', OLD.status, NEW.status) IS NULL THEN
    PERFORM refuse_transition('pipeline_run', OLD.status, NEW.status);
  END IF;
  NEW.status_from := OLD.status;
  NEW.last_seq := NEW.last_seq + 1;
  NEW.attempts := 0;
  NEW.next_attempt_at := NULL;
  NEW.lease_owner := NULL;
  NEW.lease_until := NULL;
  NEW.lease_epoch := NULL;
  IF NEW.status NOT IN ('CONSOLIDATION_SKIPPED', 'FAILED') THEN
    NEW.error := NULL;
  END IF;
  IF NEW.status = 'COMPLETED' THEN
    NEW.completed_at := greatest(NEW.started_at, at);
  END IF;
  NEW.finished_at := CASE
    WHEN NEW.status IN ('COMPLETED', 'FAILED', 'CANCELLED') THEN greatest(NEW.started_at, at)
  END;
  RETURN NEW;
END
$$;

CREATE FUNCTION pipeline_run_record() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
  run record;
BEGIN
  IF TG_OP = 'INSERT' THEN
    FOR run IN SELECT * FROM changed LOOP
      PERFORM append_run_line('PIPELINE', run.run_id, run.last_seq, run.tenant_id, 'pipeline_run.create', 'INFO',
        'created', jsonb_build_object('to', run.status, 'runType', run.run_type));
    END LOOP;
    RETURN NULL;
  END IF;
  FOR run IN SELECT * FROM changed WHERE status_from IS NOT NULL LOOP
    PERFORM append_transition_line(
      'PIPELINE', run.run_id, run.last_seq, run.tenant_id, 'pipeline_run', run.status_from, run.status, run.error);
  END LOOP;
  RETURN NULL;
END
$$;

-- A run that names no source is somebody else's, who drives it by SQL; it is shown under a source of its own kind.
CREATE FUNCTION pipeline_run_default_source() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  SELECT id INTO NEW.source_id FROM source WHERE tenant_id = NEW.tenant_id AND kind = 'external' LIMIT 1;
  IF NOT FOUND THEN
    INSERT INTO source (id, tenant_id, name, kind) VALUES (gen_random_uuid(), NEW.tenant_id, 'external', 'external')
    ON CONFLICT (tenant_id, name) DO UPDATE SET name = excluded.name WHERE source.kind = 'external'
    RETURNING id INTO NEW.source_id;
  END IF;
  RETURN NEW;
END
$$;

CREATE TRIGGER run_metadata_source BEFORE INSERT ON run_metadata
  FOR EACH ROW WHEN (NEW.source_id IS NULL) EXECUTE FUNCTION pipeline_run_default_source();
CREATE TRIGGER run_metadata_birth BEFORE INSERT ON run_metadata
  FOR EACH ROW EXECUTE FUNCTION guard_birth('pipeline_run');
CREATE TRIGGER run_metadata_first_seq BEFORE INSERT ON run_metadata
  FOR EACH ROW EXECUTE FUNCTION begin_run_ledger();
CREATE TRIGGER run_metadata_guard BEFORE UPDATE ON run_metadata
  FOR EACH ROW WHEN (NEW.status IS DISTINCT FROM OLD.status OR NEW.status_from IS NOT NULL)
  EXECUTE FUNCTION pipeline_run_guard();
CREATE TRIGGER run_metadata_created AFTER INSERT ON run_metadata
  REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION pipeline_run_record();
CREATE TRIGGER run_metadata_moved AFTER UPDATE ON run_metadata
  REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION pipeline_run_record();
CREATE TRIGGER run_metadata_kept BEFORE DELETE OR TRUNCATE ON run_metadata
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

ALTER TABLE run_metadata
  ADD CONSTRAINT run_metadata_lease CHECK (
    num_nonnulls(lease_owner, lease_until, lease_epoch) = CASE WHEN lease_owner IS NULL THEN 0 ELSE 3 END),
  ADD CONSTRAINT run_metadata_counts CHECK (
    least(records_consolidated, records_rejected, records_deleted, attempts) >= 0),
  ADD CONSTRAINT run_metadata_type CHECK (run_type IN ('full', 'incremental')),
  ADD CONSTRAINT run_metadata_workers CHECK (
    expected_workers >= 0 AND completed_workers >= 0 AND failed_workers >= 0
    AND completed_workers + failed_workers <= expected_workers),
  ADD CONSTRAINT run_metadata_times CHECK (
    (status = 'COMPLETED') = (completed_at IS NOT NULL)
    AND (status IN ('COMPLETED', 'FAILED', 'CANCELLED')) = (finished_at IS NOT NULL)
    AND coalesce(started_at <= finished_at, true));

-- -------------------------------------------------------------------------------------- partitions

CREATE FUNCTION partition_guard() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.status = OLD.status THEN
    NEW.status_from := NULL;
    RETURN NEW;
  END IF;
  IF state_event('partition', OLD.status, NEW.status) IS NULL THEN
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

CREATE FUNCTION partition_record() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
  moved record;
  run record;
  actor text := ledger_actor();
  at timestamptz := clock_timestamp();
BEGIN
  FOR moved IN
    SELECT run_id, count(*)::integer AS n,
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
      run.run_id, run.last_seq - moved.n + row_number() OVER (ORDER BY line.partition_id), run.tenant_id, 'PIPELINE',
      'partition.' || line.event, ledger_level(line.event),
      coalesce(line.error_message, line.status_from || ' → ' || line.status),
      jsonb_strip_nulls(jsonb_build_object('partitionId', line.partition_id, 'from', line.status_from,
        'to', line.status, 'attempt', line.attempts, 'error', line.error_message)),
      actor, at
    FROM (
      SELECT c.*, state_event('partition', c.status_from, c.status) AS event
      FROM changed c WHERE c.run_id = moved.run_id AND c.status_from IS NOT NULL
    ) line;
    PERFORM ring_bell('PIPELINE', run.run_id, run.last_seq, run.tenant_id);
  END LOOP;
  RETURN NULL;
END
$$;

-- Whoever writes by SQL need not know of tenants: a part belongs to its run's.
CREATE FUNCTION partition_tenant() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  SELECT tenant_id INTO NEW.tenant_id FROM run_metadata WHERE run_id = NEW.run_id;
  RETURN NEW;
END
$$;

CREATE TRIGGER worker_runs_tenant BEFORE INSERT ON worker_runs
  FOR EACH ROW WHEN (NEW.tenant_id IS NULL) EXECUTE FUNCTION partition_tenant();
CREATE TRIGGER partition_progress_tenant BEFORE INSERT ON partition_progress
  FOR EACH ROW WHEN (NEW.tenant_id IS NULL) EXECUTE FUNCTION partition_tenant();
CREATE TRIGGER worker_runs_birth BEFORE INSERT ON worker_runs
  FOR EACH ROW EXECUTE FUNCTION guard_birth('partition');
CREATE TRIGGER worker_runs_guard BEFORE UPDATE ON worker_runs
  FOR EACH ROW WHEN (NEW.status IS DISTINCT FROM OLD.status OR NEW.status_from IS NOT NULL)
  EXECUTE FUNCTION partition_guard();
CREATE TRIGGER worker_runs_moved AFTER UPDATE ON worker_runs
  REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION partition_record();
CREATE TRIGGER worker_runs_kept BEFORE DELETE OR TRUNCATE ON worker_runs
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

ALTER TABLE worker_runs
  ADD CONSTRAINT worker_runs_lease CHECK (
    num_nonnulls(lease_owner, lease_until, lease_epoch) = CASE WHEN lease_owner IS NULL THEN 0 ELSE 3 END),
  ADD CONSTRAINT worker_runs_counts CHECK (
    least(records_processed, records_duplicated, records_rejected, records_missing, attempts) >= 0),
  ADD CONSTRAINT worker_runs_times CHECK ((status IN ('completed', 'failed')) = (completed_at IS NOT NULL));

ALTER TABLE source ADD CONSTRAINT source_secrets CHECK ((secrets IS NULL) = (secrets_key_id IS NULL));

ALTER TABLE partition_progress ADD CONSTRAINT partition_progress_offset CHECK (next_offset >= 0);

-- ---------------------------------------------------------------------------------------- ops runs

-- Both with the owner's rights and names: whoever may update the view ops.runs fires them, and has no rights
-- on these tables.
CREATE FUNCTION ops_run_guard() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  at timestamptz := clock_timestamp();
BEGIN
  NEW.updated_at := at;
  IF NEW.claimed_by IS DISTINCT FROM OLD.claimed_by AND (NEW.status = OLD.status OR NEW.status NOT IN ('claimed', 'queued')) THEN
    RAISE EXCEPTION USING ERRCODE = 'RL004', MESSAGE = 'ops_run: a claim changes hands by being claimed, not otherwise';
  END IF;
  IF NEW.status = OLD.status THEN
    NEW.status_from := NULL;
    RETURN NEW;
  END IF;
  IF state_event('ops_run', OLD.status, NEW.status) IS NULL THEN
    PERFORM refuse_transition('ops_run', OLD.status, NEW.status);
  END IF;
  NEW.status_from := OLD.status;
  NEW.last_seq := NEW.last_seq + 1;
  IF NEW.status = 'queued' THEN
    NEW.claimed_by := NULL;
    NEW.started_at := NULL;
    NEW.heartbeat_at := NULL;
  ELSIF NEW.status = 'claimed' THEN
    NEW.attempts := NEW.attempts + 1;
    NEW.available_at := NULL;
    NEW.started_at := greatest(NEW.queued_at, at);
    NEW.heartbeat_at := at;
  ELSIF NEW.status = 'running' THEN
    NEW.heartbeat_at := at;
  ELSE
    NEW.finished_at := greatest(NEW.queued_at, NEW.started_at, at);
  END IF;
  RETURN NEW;
END
$$;

CREATE FUNCTION ops_run_record() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  run record;
  event text;
  -- Why, in the words of whoever moved it.
  cause text;
BEGIN
  IF TG_OP = 'INSERT' THEN
    FOR run IN SELECT * FROM changed LOOP
      PERFORM append_run_line('OPS', run.id, run.last_seq, run.tenant_id, 'ops_run.create', 'INFO', 'queued',
        jsonb_build_object('to', run.status, 'env', run.env));
    END LOOP;
    RETURN NULL;
  END IF;
  FOR run IN SELECT * FROM changed WHERE status_from IS NOT NULL LOOP
    event := state_event('ops_run', run.status_from, run.status);
    cause := left(CASE event
      WHEN 'fail' THEN run.metadata ->> 'error'
      WHEN 'cancel' THEN run.metadata ->> 'reason'
      WHEN 'requeue' THEN run.metadata #>> '{stale,reason}'
    END, 1000);
    PERFORM append_run_line(
      'OPS', run.id, run.last_seq, run.tenant_id, 'ops_run.' || event,
      CASE event WHEN 'requeue' THEN 'WARN' ELSE ledger_level(event) END,
      coalesce(cause, run.status_from || ' → ' || run.status),
      jsonb_strip_nulls(jsonb_build_object('from', run.status_from, 'to', run.status,
        'worker_id', run.claimed_by, 'attempt', nullif(run.attempts, 0),
        CASE event WHEN 'fail' THEN 'error' ELSE 'reason' END, cause)));
  END LOOP;
  RETURN NULL;
END
$$;

CREATE TRIGGER ops_run_birth BEFORE INSERT ON ops_run
  FOR EACH ROW EXECUTE FUNCTION guard_birth('ops_run');
CREATE TRIGGER ops_run_first_seq BEFORE INSERT ON ops_run
  FOR EACH ROW EXECUTE FUNCTION begin_run_ledger();
CREATE TRIGGER ops_run_guard BEFORE UPDATE ON ops_run
  FOR EACH ROW EXECUTE FUNCTION ops_run_guard();
CREATE TRIGGER ops_run_created AFTER INSERT ON ops_run
  REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION ops_run_record();
CREATE TRIGGER ops_run_moved AFTER UPDATE ON ops_run
  REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION ops_run_record();
CREATE TRIGGER ops_run_kept BEFORE DELETE OR TRUNCATE ON ops_run
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

ALTER TABLE ops_run
  ADD CONSTRAINT ops_run_on_stale CHECK (on_stale IN ('cancel', 'requeue')),
  ADD CONSTRAINT ops_run_attempts CHECK (attempts >= 0 AND max_attempts BETWEEN 1 AND 100),
  ADD CONSTRAINT ops_run_metadata CHECK (jsonb_typeof(metadata) = 'object'),
  ADD CONSTRAINT ops_run_claim CHECK (
    (status <> 'queued' OR claimed_by IS NULL)
    AND (status NOT IN ('claimed', 'running', 'success', 'failed') OR claimed_by IS NOT NULL)),
  ADD CONSTRAINT ops_run_times CHECK (
    (status NOT IN ('claimed', 'running', 'success', 'failed') OR started_at IS NOT NULL)
    AND (status IN ('success', 'failed', 'cancelled')) = (finished_at IS NOT NULL)
    AND coalesce(queued_at <= started_at, true)
    AND coalesce(started_at <= finished_at, true));
