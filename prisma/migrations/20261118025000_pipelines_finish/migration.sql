-- A run that was cancelled while a page of it was read kept the page's lease, which nobody takes back.
UPDATE worker_runs part SET lease_owner = NULL, lease_until = NULL, lease_epoch = NULL
FROM run_metadata run
WHERE run.run_id = part.run_id AND run.status = 'CANCELLED' AND part.lease_owner IS NOT NULL;
