// Who keeps vacuum from clearing away what nobody needs any more, and so makes every claim slower: transactions,
// prepared transactions and replication slots. Read by facts, alerts and the doctor. A role that is neither the
// sessions' own nor a member of pg_read_all_stats does not see what others do.

/** Rows (what, since, age): since is null for a slot, which has no time; age is in transactions. */
export const HORIZON_HOLDERS = `
  SELECT format('the session %s of %s', pid, coalesce(nullif(application_name, ''), usename, backend_type)) AS what,
    xact_start AS since, greatest(age(backend_xmin), age(backend_xid)) AS age
  FROM pg_stat_activity
  -- Vacuum itself keeps nobody waiting.
  WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker'
    AND coalesce(backend_xmin, backend_xid) IS NOT NULL
  UNION ALL
  SELECT format('the prepared transaction %s of %s', gid, owner), prepared, age(transaction)
  FROM pg_prepared_xacts WHERE database = current_database()
  UNION ALL
  SELECT format('the replication slot %s', slot_name), NULL, age(xmin)
  FROM pg_replication_slots WHERE xmin IS NOT NULL`;
