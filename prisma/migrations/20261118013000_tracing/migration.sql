-- The trace of the request that set a run's work going (W3C traceparent), so that the work, which some process
-- takes up later, is shown in the same trace. Null: nobody traced it.
ALTER TABLE "rule_run" ADD COLUMN "trace_parent" TEXT;
ALTER TABLE "run_metadata" ADD COLUMN "trace_parent" TEXT;
ALTER TABLE "rule_run" ADD CONSTRAINT rule_run_trace_parent CHECK (length(trace_parent) = 55);
ALTER TABLE "run_metadata" ADD CONSTRAINT run_metadata_trace_parent CHECK (length(trace_parent) = 55);
