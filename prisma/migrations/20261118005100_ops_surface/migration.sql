-- The SQL surface of ops runs, for workers that have psql and for callers that queue in their own
-- transaction: schema ops, with the views runs and run_events and one function per verb.
--
-- The functions run with the owner's rights, so that a role needs none on the tables, and with names that
-- their caller cannot redirect. The ledger names the worker where the caller named it, else the database
-- role that is logged in; what the caller has set as runledger.actor is not believed here.

CREATE SCHEMA ops;

-- Which tenant a database role belongs to; a role that is not here belongs to `default`. A table, since a
-- setting could be changed by the very session that it is to confine.
CREATE TABLE "sql_role" (
    "role_name" TEXT NOT NULL,
    "tenant_id" TEXT NOT NULL,

    CONSTRAINT "sql_role_pkey" PRIMARY KEY ("role_name")
);
ALTER TABLE "sql_role" ADD CONSTRAINT "sql_role_tenant_id_fkey" FOREIGN KEY ("tenant_id") REFERENCES "tenant"("id") ON DELETE RESTRICT ON UPDATE CASCADE;

CREATE FUNCTION ops.current_tenant() RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT coalesce((SELECT tenant_id FROM sql_role WHERE role_name = session_user), 'default')
$$;

-- ------------------------------------------------------------------------------------------- views

-- The tenant is asked for once per query, not once per row.
CREATE VIEW ops.runs WITH (security_barrier) AS
SELECT
  'run-' || id::text AS run_id, project_id, env AS env_id, git_sha, git_ref, status, claimed_by, idempotency_key,
  metadata, queued_at, started_at, finished_at, created_at, updated_at,
  priority, attempts, max_attempts, on_stale, available_at, heartbeat_at
FROM ops_run
WHERE tenant_id = (SELECT ops.current_tenant());

-- Joined to the run: its run_id has an index, and leads to the ledger by the ledger's own key.
CREATE VIEW ops.run_events WITH (security_barrier) AS
SELECT
  'run-' || run.id::text || ':' || line.seq AS event_id, 'run-' || run.id::text AS run_id,
  lower(line.level::text) AS level, line.message, line.payload, line.created_at, line.seq, line.type, line.actor
FROM ops_run run
JOIN run_event line ON line.run_id = run.id
WHERE run.tenant_id = (SELECT ops.current_tenant());

-- ------------------------------------------------------------------------------------------- verbs

CREATE FUNCTION ops.queue_run(
  p_project_id text, p_env text, p_git_sha text, p_git_ref text, p_metadata jsonb DEFAULT '{}'::jsonb,
  p_idempotency_key text DEFAULT NULL, p_priority integer DEFAULT 0, p_on_stale text DEFAULT 'cancel',
  p_max_attempts integer DEFAULT 3
) RETURNS TABLE (run_id text, status text, queued_at timestamptz)
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT 'run-' || run.id, run.status, run.queued_at
  FROM ops_run_queue(ops.current_tenant(), NULL, p_project_id, p_env, p_git_sha, p_git_ref, p_metadata,
    p_idempotency_key, p_priority, p_on_stale, p_max_attempts, false) run
$$;

CREATE FUNCTION ops.claim_next_run(p_worker_id text, p_project_id text DEFAULT NULL, p_env text DEFAULT NULL)
RETURNS TABLE (run_id text, project_id text, env_id text, git_sha text, git_ref text, metadata jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
BEGIN
  PERFORM set_config('runledger.actor', p_worker_id, true);
  RETURN QUERY
    SELECT 'run-' || run.id, run.project_id, run.env, run.git_sha, run.git_ref, run.metadata
    FROM ops_run_claim(ops.current_tenant(), p_worker_id, p_project_id, p_env) run;
END
$$;

-- Answers the id of the event. A worker that names itself is refused when it does not hold the claim.
CREATE FUNCTION ops.append_event(
  p_run_id text, p_level text, p_message text, p_payload jsonb DEFAULT '{}'::jsonb, p_worker_id text DEFAULT NULL,
  p_idempotency_key text DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  line run_event;
BEGIN
  PERFORM set_config('runledger.actor', p_worker_id, true);
  line := ops_run_append(ops.current_tenant(), p_run_id, p_level, p_message, p_payload, p_worker_id, NULL, p_idempotency_key);
  RETURN 'run-' || line.run_id || ':' || line.seq;
END
$$;

-- Answers the run's status: a worker that reads `cancelled` stops.
CREATE FUNCTION ops.heartbeat(p_run_id text, p_worker_id text) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT status FROM ops_run_heartbeat(ops.current_tenant(), p_run_id, p_worker_id, NULL)
$$;

-- Answers the run's status. Without a worker's name it is also the way to cancel a run by hand.
CREATE FUNCTION ops.finish_run(
  p_run_id text, p_status text, p_metadata jsonb DEFAULT '{}'::jsonb, p_worker_id text DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  run ops_run;
BEGIN
  PERFORM set_config('runledger.actor', p_worker_id, true);
  run := ops_run_finish(ops.current_tenant(), p_run_id, p_status, p_metadata, p_worker_id, NULL);
  RETURN run.status;
END
$$;

-- --------------------------------------------------------------------- writing to the views by hand

-- UPDATE of ops.runs is PostgreSQL's own, down to ops_run and its guard. An INSERT needs the tenant and an id.
CREATE FUNCTION ops.insert_run() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  run ops_run;
BEGIN
  IF NEW.status <> state_initial('ops_run') THEN
    RAISE EXCEPTION USING
      ERRCODE = 'RL002', MESSAGE = format('ops_run: a new row is %s, not %s', state_initial('ops_run'), NEW.status);
  END IF;
  IF NEW.run_id IS NOT NULL AND ops_run_uuid(NEW.run_id) IS NULL THEN
    PERFORM refuse('RL005', 'run_id must be "run-" and a UUID.', '{"field": "runId"}');
  END IF;
  run := ops_run_queue(ops.current_tenant(), ops_run_uuid(NEW.run_id), NEW.project_id, NEW.env_id, NEW.git_sha,
    NEW.git_ref, NEW.metadata, NEW.idempotency_key, coalesce(NEW.priority, 0), coalesce(NEW.on_stale, 'cancel'),
    coalesce(NEW.max_attempts, 3), false);
  SELECT * INTO NEW FROM ops.runs WHERE run_id = 'run-' || run.id;
  RETURN NEW;
END
$$;

CREATE TRIGGER runs_insert INSTEAD OF INSERT ON ops.runs FOR EACH ROW EXECUTE FUNCTION ops.insert_run();

CREATE FUNCTION ops.insert_run_event() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  id text := ops.append_event(NEW.run_id, coalesce(NEW.level, 'info'), NEW.message, coalesce(NEW.payload, '{}'));
BEGIN
  SELECT * INTO NEW FROM ops.run_events WHERE run_id = NEW.run_id AND event_id = id;
  RETURN NEW;
END
$$;

CREATE TRIGGER run_events_insert INSTEAD OF INSERT ON ops.run_events
  FOR EACH ROW EXECUTE FUNCTION ops.insert_run_event();

-- ------------------------------------------------------------------------------------------ rights

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA ops FROM PUBLIC;

-- Gives a role the verbs and the two views, and nothing else. For whoever owns the database.
CREATE FUNCTION ops.grant_worker(role_name name DEFAULT 'runledger_worker') RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  EXECUTE format('GRANT USAGE ON SCHEMA ops TO %I', role_name);
  EXECUTE format('GRANT SELECT ON ops.runs, ops.run_events TO %I', role_name);
  EXECUTE format('GRANT EXECUTE ON FUNCTION ops.current_tenant, ops.queue_run, ops.claim_next_run, '
    'ops.append_event, ops.heartbeat, ops.finish_run TO %I', role_name);
END
$$;
REVOKE ALL ON FUNCTION ops.grant_worker FROM PUBLIC;

-- Roles belong to the whole server: another database of it may have made this one already, even just now.
DO $$
BEGIN
  BEGIN
    CREATE ROLE runledger_worker NOLOGIN;
  EXCEPTION
    WHEN duplicate_object OR unique_violation THEN NULL;
    WHEN insufficient_privilege THEN
      IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'runledger_worker') THEN
        RAISE NOTICE 'Role runledger_worker was not made: % may not create roles. Make it, then SELECT ops.grant_worker().', current_user;
        RETURN;
      END IF;
  END;
  PERFORM ops.grant_worker();
END
$$;

-- A function that comes with a setting of ours (SET runledger.actor = '') can be made by a superuser alone,
-- which a database of somebody else's hosting does not give. Since 20261119017000 the functions set it themselves.
-- Formerly 90ab78a29077e134611cc847f8bcfbf325ca84e9ffdd55d89a77f214d5c4ca1c
