-- Whoever drives a run by SQL moves what is shown of it by statements that append nothing to the ledger: a partition's
-- offset, what it has processed, the run's own counters. Each rings once for each of its runs. Runs of our own sources
-- are rung for by the server, no more often than is of use.
CREATE FUNCTION pipeline_run_ring() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM ring_bell('PIPELINE', run.run_id, run.last_seq, run.tenant_id)
  FROM run_metadata run JOIN source ON source.id = run.source_id
  WHERE run.run_id = ANY(ARRAY(SELECT DISTINCT run_id FROM changed)) AND source.kind = 'external';
  RETURN NULL;
END
$$;

-- By their names after the triggers that append lines: the bell says the seq of the newest.
CREATE TRIGGER run_metadata_ring AFTER UPDATE ON run_metadata
  REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION pipeline_run_ring();
CREATE TRIGGER worker_runs_ring AFTER UPDATE ON worker_runs
  REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION pipeline_run_ring();
CREATE TRIGGER partition_progress_ring AFTER UPDATE ON partition_progress
  REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION pipeline_run_ring();
