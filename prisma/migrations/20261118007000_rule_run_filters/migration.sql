-- The filters of the list of rule runs, each in the order of the list. None of these columns ever changes, so
-- they cost a run's many updates nothing.
CREATE INDEX "rule_run_tenant_id_project_id_id_idx" ON "rule_run"("tenant_id", "project_id", "id");
CREATE INDEX "rule_run_tenant_id_correlation_id_id_idx" ON "rule_run"("tenant_id", "correlation_id", "id");
