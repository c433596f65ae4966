-- What is read again and again by those who watch the whole, however much history there is.

-- The newest run of a source: whether its last one failed is asked every few seconds.
CREATE INDEX "run_metadata_source_id_created_at_run_id_idx" ON "run_metadata"("source_id", "created_at", "run_id");
DROP INDEX "run_metadata_source_id_idx";

-- Dead letters are summed from the index alone. An update of the count touched it before, by its condition.
DROP INDEX rule_run_dead_letter_idx;
CREATE INDEX rule_run_dead_letter_idx ON rule_run (tenant_id) INCLUDE (failed_count) WHERE failed_count > 0;
