-- A settle can hold a target that is no longer its own: a statement that waited for one which its worker lost
-- meanwhile has locked it by the time it sees that. It goes on to wait for the run, and a verb that holds the run
-- would wait for that target. So settles pass the same lock as claims: together, and none beside a verb.
CREATE FUNCTION join_claims(run uuid) RETURNS void
LANGUAGE sql STRICT AS $$ SELECT pg_advisory_xact_lock_shared(claims_lock(run)) $$;
