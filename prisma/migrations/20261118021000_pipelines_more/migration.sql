-- What a partition knows of the feed between two of its pages, and why a run kept items that it did not see.

ALTER TABLE "worker_runs" ADD COLUMN "reading" JSONB NOT NULL DEFAULT '{}';

ALTER TABLE "run_metadata"
  ADD COLUMN "forced" BOOLEAN NOT NULL DEFAULT false,
  ADD COLUMN "records_kept" INTEGER NOT NULL DEFAULT 0,
  ADD COLUMN "kept_reason" TEXT;

-- A worker of somebody else's inserts its row when it begins to read, as running. It is born as every partition is
-- and moved at once, so that the machine and the ledger see the step; the mark between the two is status_from.
CREATE FUNCTION partition_born_running() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM run_metadata run JOIN source ON source.id = run.source_id
             WHERE run.run_id = NEW.run_id AND source.kind = 'external') THEN
    NEW.status := 'pending';
    NEW.status_from := 'running';
  END IF;
  RETURN NEW;
END
$$;

CREATE FUNCTION partition_begin() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  UPDATE run_metadata SET status = 'WORKERS_RUNNING' WHERE run_id = NEW.run_id AND status = 'CREATED';
  UPDATE worker_runs SET status = 'running' WHERE id = NEW.id;
  RETURN NULL;
END
$$;

-- Before worker_runs_birth, by its name.
CREATE TRIGGER worker_runs_begun BEFORE INSERT ON worker_runs
  FOR EACH ROW WHEN (NEW.status = 'running') EXECUTE FUNCTION partition_born_running();
CREATE TRIGGER worker_runs_begin AFTER INSERT ON worker_runs
  FOR EACH ROW WHEN (NEW.status = 'pending' AND NEW.status_from = 'running') EXECUTE FUNCTION partition_begin();

-- A run that has partitions counts them by itself: whoever counts as well gets what is counted, not the double.
CREATE FUNCTION pipeline_run_counters() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
  counted record;
BEGIN
  SELECT count(*)::integer AS partitions, (count(*) FILTER (WHERE status = 'completed'))::integer AS completed,
    (count(*) FILTER (WHERE status = 'failed'))::integer AS failed
  INTO counted FROM worker_runs WHERE run_id = NEW.run_id;
  IF counted.partitions > 0 THEN
    NEW.completed_workers := counted.completed;
    NEW.failed_workers := counted.failed;
  END IF;
  RETURN NEW;
END
$$;

-- The partitions' own trigger counts one level deeper.
CREATE TRIGGER run_metadata_counters BEFORE UPDATE OF completed_workers, failed_workers ON run_metadata
  FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION pipeline_run_counters();
