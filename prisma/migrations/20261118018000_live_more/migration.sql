-- The newest pages of the ledger are the ones that are looked at after bells were missed. Left to a vacuum, whose
-- turn comes when a fifth of the table is new, they would have no summary, and all of them would be read.
ALTER INDEX "run_event_created_at_idx" SET (autosummarize = on);
