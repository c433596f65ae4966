-- Of a sink with several addresses, those that have taken a notice: it is sent again to the others alone.
ALTER TABLE alert_notice ADD COLUMN "taken_by" TEXT[] NOT NULL DEFAULT ARRAY[]::TEXT[];
