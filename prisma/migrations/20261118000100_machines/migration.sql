-- Generated from the machines in src/domain. Do not edit: change the machine, then `npm run generate`.

-- The event that a change of status stands for; null when the machine does not allow it.
CREATE OR REPLACE FUNCTION state_event(machine text, from_state text, to_state text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE machine
    WHEN 'rule_run' THEN CASE
      WHEN from_state = 'PREVIEW' AND to_state = 'QUEUED' THEN 'queue'
      WHEN from_state = 'QUEUED' AND to_state = 'APPLYING' THEN 'start'
      WHEN from_state = 'APPLYING' AND to_state = 'APPLIED' THEN 'complete'
      WHEN from_state = 'APPLYING' AND to_state = 'PARTIAL' THEN 'complete_partially'
      WHEN from_state = 'APPLYING' AND to_state = 'FAILED' THEN 'fail'
      WHEN from_state = 'PARTIAL' AND to_state = 'APPLYING' THEN 'retry_failed'
      WHEN from_state = 'FAILED' AND to_state = 'APPLYING' THEN 'retry_all'
      WHEN from_state = 'APPLIED' AND to_state = 'ROLLED_BACK' THEN 'roll_back'
      WHEN from_state = 'PARTIAL' AND to_state = 'ROLLED_BACK' THEN 'roll_back'
      WHEN from_state = 'CANCELLED' AND to_state = 'ROLLED_BACK' THEN 'roll_back'
      WHEN from_state = 'PREVIEW' AND to_state = 'CANCELLED' THEN 'cancel'
      WHEN from_state = 'QUEUED' AND to_state = 'CANCELLED' THEN 'cancel'
      WHEN from_state = 'APPLYING' AND to_state = 'CANCELLED' THEN 'cancel'
    END
    WHEN 'rule_target' THEN CASE
      WHEN from_state = 'PREVIEW' AND to_state = 'QUEUED' THEN 'include'
      WHEN from_state = 'QUEUED' AND to_state = 'APPLYING' THEN 'claim'
      WHEN from_state = 'APPLYING' AND to_state = 'APPLIED' THEN 'succeed'
      WHEN from_state = 'APPLYING' AND to_state = 'QUEUED' THEN 'retry'
      WHEN from_state = 'APPLYING' AND to_state = 'FAILED' THEN 'exhaust'
      WHEN from_state = 'FAILED' AND to_state = 'QUEUED' THEN 'requeue'
      WHEN from_state = 'APPLIED' AND to_state = 'ROLLED_BACK' THEN 'roll_back'
      WHEN from_state = 'PREVIEW' AND to_state = 'CANCELLED' THEN 'cancel'
      WHEN from_state = 'QUEUED' AND to_state = 'CANCELLED' THEN 'cancel'
    END
    WHEN 'pipeline_run' THEN CASE
      WHEN from_state = 'CREATED' AND to_state = 'WORKERS_RUNNING' THEN 'start'
      WHEN from_state = 'WORKERS_RUNNING' AND to_state = 'CONSOLIDATING' THEN 'consolidate'
      WHEN from_state = 'WORKERS_RUNNING' AND to_state = 'CONSOLIDATION_SKIPPED' THEN 'skip_consolidation'
      WHEN from_state = 'CONSOLIDATING' AND to_state = 'COMPLETED' THEN 'complete'
      WHEN from_state = 'CREATED' AND to_state = 'FAILED' THEN 'fail'
      WHEN from_state = 'CONSOLIDATION_SKIPPED' AND to_state = 'FAILED' THEN 'fail'
      WHEN from_state = 'CONSOLIDATING' AND to_state = 'FAILED' THEN 'fail'
      WHEN from_state = 'FAILED' AND to_state = 'WORKERS_RUNNING' THEN 'retry_partitions'
      WHEN from_state = 'FAILED' AND to_state = 'CONSOLIDATING' THEN 'force_consolidate'
      WHEN from_state = 'CREATED' AND to_state = 'CANCELLED' THEN 'cancel'
      WHEN from_state = 'WORKERS_RUNNING' AND to_state = 'CANCELLED' THEN 'cancel'
      WHEN from_state = 'CONSOLIDATING' AND to_state = 'CANCELLED' THEN 'cancel'
    END
    WHEN 'partition' THEN CASE
      WHEN from_state = 'pending' AND to_state = 'running' THEN 'start'
      WHEN from_state = 'running' AND to_state = 'completed' THEN 'complete'
      WHEN from_state = 'running' AND to_state = 'failed' THEN 'fail'
      WHEN from_state = 'failed' AND to_state = 'pending' THEN 'retry'
    END
    WHEN 'ops_run' THEN CASE
      WHEN from_state = 'queued' AND to_state = 'claimed' THEN 'claim'
      WHEN from_state = 'claimed' AND to_state = 'running' THEN 'start'
      WHEN from_state = 'running' AND to_state = 'success' THEN 'succeed'
      WHEN from_state = 'running' AND to_state = 'failed' THEN 'fail'
      WHEN from_state = 'queued' AND to_state = 'cancelled' THEN 'cancel'
      WHEN from_state = 'claimed' AND to_state = 'cancelled' THEN 'cancel'
      WHEN from_state = 'running' AND to_state = 'cancelled' THEN 'cancel'
      WHEN from_state = 'claimed' AND to_state = 'queued' THEN 'requeue'
      WHEN from_state = 'running' AND to_state = 'queued' THEN 'requeue'
    END
  END
$$;

-- The state in which a row is born.
CREATE OR REPLACE FUNCTION state_initial(machine text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE machine WHEN 'rule_run' THEN 'PREVIEW' WHEN 'rule_target' THEN 'PREVIEW' WHEN 'pipeline_run' THEN 'CREATED' WHEN 'partition' THEN 'pending' WHEN 'ops_run' THEN 'queued' END
$$;

TRUNCATE state_transition;
INSERT INTO state_transition (machine, event, from_state, to_state, actors, condition) VALUES
  ('rule_run', 'queue', 'PREVIEW', 'QUEUED', ARRAY['API', 'SYSTEM'], 'a person or a schedule asks for it, and it has targets'),
  ('rule_run', 'start', 'QUEUED', 'APPLYING', ARRAY['WORKER'], 'a worker picks it up'),
  ('rule_run', 'complete', 'APPLYING', 'APPLIED', ARRAY['WORKER'], 'every target is applied'),
  ('rule_run', 'complete_partially', 'APPLYING', 'PARTIAL', ARRAY['WORKER'], 'nothing is left to try, and some targets failed'),
  ('rule_run', 'fail', 'APPLYING', 'FAILED', ARRAY['WORKER'], 'a critical error, or every target failed'),
  ('rule_run', 'retry_failed', 'PARTIAL', 'APPLYING', ARRAY['API'], 'a person asks to retry failed targets'),
  ('rule_run', 'retry_all', 'FAILED', 'APPLYING', ARRAY['API'], 'a person asks to retry the whole run'),
  ('rule_run', 'roll_back', 'APPLIED', 'ROLLED_BACK', ARRAY['API', 'WORKER', 'SYSTEM'], 'rollback was asked for, and the last applied target is set back'),
  ('rule_run', 'roll_back', 'PARTIAL', 'ROLLED_BACK', ARRAY['API', 'WORKER', 'SYSTEM'], 'rollback was asked for, and the last applied target is set back'),
  ('rule_run', 'roll_back', 'CANCELLED', 'ROLLED_BACK', ARRAY['API', 'WORKER', 'SYSTEM'], 'rollback was asked for, and the last applied target is set back'),
  ('rule_run', 'cancel', 'PREVIEW', 'CANCELLED', ARRAY['API'], 'a person stops it; work in flight settles with its true result'),
  ('rule_run', 'cancel', 'QUEUED', 'CANCELLED', ARRAY['API'], 'a person stops it; work in flight settles with its true result'),
  ('rule_run', 'cancel', 'APPLYING', 'CANCELLED', ARRAY['API'], 'a person stops it; work in flight settles with its true result'),
  ('rule_target', 'include', 'PREVIEW', 'QUEUED', ARRAY['API'], 'its run is queued'),
  ('rule_target', 'claim', 'QUEUED', 'APPLYING', ARRAY['WORKER'], 'a worker takes a lease on it'),
  ('rule_target', 'succeed', 'APPLYING', 'APPLIED', ARRAY['WORKER'], 'the channel accepted the price'),
  ('rule_target', 'retry', 'APPLYING', 'QUEUED', ARRAY['WORKER', 'SYSTEM'], 'the attempt failed in passing and attempts are left, or its lease was lost or handed back'),
  ('rule_target', 'exhaust', 'APPLYING', 'FAILED', ARRAY['WORKER', 'SYSTEM'], 'attempts are used up, or the error cannot pass by itself'),
  ('rule_target', 'requeue', 'FAILED', 'QUEUED', ARRAY['API'], 'a person asks to retry it'),
  ('rule_target', 'roll_back', 'APPLIED', 'ROLLED_BACK', ARRAY['API', 'WORKER'], 'the channel has its former price again'),
  ('rule_target', 'cancel', 'PREVIEW', 'CANCELLED', ARRAY['API'], 'its run is cancelled'),
  ('rule_target', 'cancel', 'QUEUED', 'CANCELLED', ARRAY['API'], 'its run is cancelled'),
  ('pipeline_run', 'start', 'CREATED', 'WORKERS_RUNNING', ARRAY['WORKER'], 'the feed is planned and workers take up its partitions'),
  ('pipeline_run', 'consolidate', 'WORKERS_RUNNING', 'CONSOLIDATING', ARRAY['WORKER'], 'every partition completed'),
  ('pipeline_run', 'skip_consolidation', 'WORKERS_RUNNING', 'CONSOLIDATION_SKIPPED', ARRAY['WORKER'], 'every partition ended, some failed, and consolidation is not forced'),
  ('pipeline_run', 'complete', 'CONSOLIDATING', 'COMPLETED', ARRAY['WORKER'], 'every raw item is consolidated and the watermark is saved'),
  ('pipeline_run', 'fail', 'CREATED', 'FAILED', ARRAY['WORKER', 'SYSTEM'], 'the feed could not be planned, or consolidation was skipped or broke; the watermark stays'),
  ('pipeline_run', 'fail', 'CONSOLIDATION_SKIPPED', 'FAILED', ARRAY['WORKER', 'SYSTEM'], 'the feed could not be planned, or consolidation was skipped or broke; the watermark stays'),
  ('pipeline_run', 'fail', 'CONSOLIDATING', 'FAILED', ARRAY['WORKER', 'SYSTEM'], 'the feed could not be planned, or consolidation was skipped or broke; the watermark stays'),
  ('pipeline_run', 'retry_partitions', 'FAILED', 'WORKERS_RUNNING', ARRAY['API'], 'a person asks to continue the failed partitions'),
  ('pipeline_run', 'force_consolidate', 'FAILED', 'CONSOLIDATING', ARRAY['API'], 'a person asks to consolidate what there is'),
  ('pipeline_run', 'cancel', 'CREATED', 'CANCELLED', ARRAY['API'], 'a person stops it'),
  ('pipeline_run', 'cancel', 'WORKERS_RUNNING', 'CANCELLED', ARRAY['API'], 'a person stops it'),
  ('pipeline_run', 'cancel', 'CONSOLIDATING', 'CANCELLED', ARRAY['API'], 'a person stops it'),
  ('partition', 'start', 'pending', 'running', ARRAY['WORKER'], 'a worker reads its first page'),
  ('partition', 'complete', 'running', 'completed', ARRAY['WORKER'], 'the last page is in'),
  ('partition', 'fail', 'running', 'failed', ARRAY['WORKER', 'SYSTEM'], 'a permanent error, or the deliveries of a page are used up'),
  ('partition', 'retry', 'failed', 'pending', ARRAY['API'], 'a person asks to continue it'),
  ('ops_run', 'claim', 'queued', 'claimed', ARRAY['WORKER'], 'a worker asks for the next run'),
  ('ops_run', 'start', 'claimed', 'running', ARRAY['WORKER'], 'the worker that claimed it appends its first event'),
  ('ops_run', 'succeed', 'running', 'success', ARRAY['WORKER'], 'the worker reports success'),
  ('ops_run', 'fail', 'running', 'failed', ARRAY['WORKER'], 'the worker reports a failure'),
  ('ops_run', 'cancel', 'queued', 'cancelled', ARRAY['API', 'WORKER', 'SYSTEM'], 'a person or the worker stops it, or its claim went stale'),
  ('ops_run', 'cancel', 'claimed', 'cancelled', ARRAY['API', 'WORKER', 'SYSTEM'], 'a person or the worker stops it, or its claim went stale'),
  ('ops_run', 'cancel', 'running', 'cancelled', ARRAY['API', 'WORKER', 'SYSTEM'], 'a person or the worker stops it, or its claim went stale'),
  ('ops_run', 'requeue', 'claimed', 'queued', ARRAY['SYSTEM'], 'its claim went stale, it was queued to be tried again, and attempts are left'),
  ('ops_run', 'requeue', 'running', 'queued', ARRAY['SYSTEM'], 'its claim went stale, it was queued to be tried again, and attempts are left'),
  ('worker_loop', 'boot', 'STARTUP', 'CONNECTING', ARRAY['WORKER'], 'the runner starts'),
  ('worker_loop', 'connect', 'CONNECTING', 'RECOVERY', ARRAY['WORKER'], 'the database answers'),
  ('worker_loop', 'recover', 'RECOVERY', 'POLLING', ARRAY['WORKER'], 'expired leases were taken back, or were looked for a moment ago'),
  ('worker_loop', 'find', 'POLLING', 'CLAIMING', ARRAY['WORKER'], 'some run has work that is due'),
  ('worker_loop', 'find_nothing', 'POLLING', 'BACKOFF', ARRAY['WORKER'], 'no run has'),
  ('worker_loop', 'rest', 'BACKOFF', 'IDLE', ARRAY['WORKER'], 'the length of the rest is known'),
  ('worker_loop', 'wake', 'IDLE', 'CONNECTING', ARRAY['WORKER'], 'the rest is over or a bell rang'),
  ('worker_loop', 'claim', 'CLAIMING', 'PROCESSING', ARRAY['WORKER'], 'leases were taken'),
  ('worker_loop', 'miss', 'CLAIMING', 'POLLING', ARRAY['WORKER'], 'another worker was faster'),
  ('worker_loop', 'succeed', 'PROCESSING', 'REPORTING_SUCCESS', ARRAY['WORKER'], 'every item of the unit of work succeeded'),
  ('worker_loop', 'fail', 'PROCESSING', 'REPORTING_FAILURE', ARRAY['WORKER'], 'some item of the unit of work failed'),
  ('worker_loop', 'report', 'REPORTING_SUCCESS', 'POLLING', ARRAY['WORKER'], 'the results are settled'),
  ('worker_loop', 'report', 'REPORTING_FAILURE', 'POLLING', ARRAY['WORKER'], 'the results are settled'),
  ('worker_loop', 'error', 'CONNECTING', 'ERROR_WAIT', ARRAY['WORKER'], 'anything unexpected'),
  ('worker_loop', 'error', 'RECOVERY', 'ERROR_WAIT', ARRAY['WORKER'], 'anything unexpected'),
  ('worker_loop', 'error', 'POLLING', 'ERROR_WAIT', ARRAY['WORKER'], 'anything unexpected'),
  ('worker_loop', 'error', 'BACKOFF', 'ERROR_WAIT', ARRAY['WORKER'], 'anything unexpected'),
  ('worker_loop', 'error', 'IDLE', 'ERROR_WAIT', ARRAY['WORKER'], 'anything unexpected'),
  ('worker_loop', 'error', 'CLAIMING', 'ERROR_WAIT', ARRAY['WORKER'], 'anything unexpected'),
  ('worker_loop', 'error', 'PROCESSING', 'ERROR_WAIT', ARRAY['WORKER'], 'anything unexpected'),
  ('worker_loop', 'error', 'REPORTING_SUCCESS', 'ERROR_WAIT', ARRAY['WORKER'], 'anything unexpected'),
  ('worker_loop', 'error', 'REPORTING_FAILURE', 'ERROR_WAIT', ARRAY['WORKER'], 'anything unexpected'),
  ('worker_loop', 'retry', 'ERROR_WAIT', 'CONNECTING', ARRAY['WORKER'], 'five seconds are over'),
  ('worker_loop', 'stop', 'STARTUP', 'STOPPED', ARRAY['SYSTEM'], 'the process is asked to stop'),
  ('worker_loop', 'stop', 'CONNECTING', 'STOPPED', ARRAY['SYSTEM'], 'the process is asked to stop'),
  ('worker_loop', 'stop', 'RECOVERY', 'STOPPED', ARRAY['SYSTEM'], 'the process is asked to stop'),
  ('worker_loop', 'stop', 'POLLING', 'STOPPED', ARRAY['SYSTEM'], 'the process is asked to stop'),
  ('worker_loop', 'stop', 'BACKOFF', 'STOPPED', ARRAY['SYSTEM'], 'the process is asked to stop'),
  ('worker_loop', 'stop', 'IDLE', 'STOPPED', ARRAY['SYSTEM'], 'the process is asked to stop'),
  ('worker_loop', 'stop', 'CLAIMING', 'STOPPED', ARRAY['SYSTEM'], 'the process is asked to stop'),
  ('worker_loop', 'stop', 'PROCESSING', 'STOPPED', ARRAY['SYSTEM'], 'the process is asked to stop'),
  ('worker_loop', 'stop', 'REPORTING_SUCCESS', 'STOPPED', ARRAY['SYSTEM'], 'the process is asked to stop'),
  ('worker_loop', 'stop', 'REPORTING_FAILURE', 'STOPPED', ARRAY['SYSTEM'], 'the process is asked to stop'),
  ('worker_loop', 'stop', 'ERROR_WAIT', 'STOPPED', ARRAY['SYSTEM'], 'the process is asked to stop');
