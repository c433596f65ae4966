-- What live connections need beside the bells of runs.

-- A key that is revoked, or given another role, rings: its sockets and streams are asked for it again at once.
CREATE FUNCTION api_key_ring() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('runledger', json_build_object('kind', 'KEY', 'id', NEW.id, 'tenant', NEW.tenant_id,
    'at', floor(extract(epoch FROM clock_timestamp()) * 1000))::text);
  RETURN NULL;
END
$$;

CREATE TRIGGER api_key_changed AFTER UPDATE ON api_key
  FOR EACH ROW WHEN (NEW.revoked_at IS DISTINCT FROM OLD.revoked_at OR NEW.role IS DISTINCT FROM OLD.role)
  EXECUTE FUNCTION api_key_ring();

-- Which runs changed while no bells were heard. The ledger is written in the order of its time, so that a
-- summary per range of pages finds its end, and costs an insert next to nothing.
CREATE INDEX "run_event_created_at_idx" ON "run_event" USING brin ("created_at") WITH (pages_per_range = 32);
