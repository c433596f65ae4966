-- What the people on call need.

-- ------------------------------------------------------------------------------------------- facts
-- Read at every scrape and by the alerts, so each is answered from an index that today's work does not write:
-- a run enters and leaves them when its state changes or a target fails, not with every batch.

-- Runs that have dead letters.
CREATE INDEX rule_run_dead_letter_idx ON rule_run (tenant_id) WHERE failed_count > 0;

-- Runs by the time they ended, for rates over a window and for retention.
CREATE INDEX rule_run_finished_idx ON rule_run (finished_at) WHERE finished_at IS NOT NULL;

-- Pipeline runs that are under way.
CREATE INDEX run_metadata_open_idx ON run_metadata (run_id)
  WHERE status IN ('CREATED', 'WORKERS_RUNNING', 'CONSOLIDATING');

-- -------------------------------------------------------------------------------------------- bell

-- As before, and when it was rung, in milliseconds, so that listeners can tell how far behind they are.
CREATE OR REPLACE FUNCTION ring_bell(kind run_kind, run_id uuid, seq integer, tenant_id text) RETURNS void
LANGUAGE sql AS $$
  SELECT pg_notify('runledger', json_build_object('kind', kind, 'id', run_id, 'seq', seq, 'tenant', tenant_id,
    'at', floor(extract(epoch FROM clock_timestamp()) * 1000))::text)
$$;
