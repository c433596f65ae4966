-- Of a sink with several addresses, those that have taken a notice: it is sent again to the others alone.
ALTER TABLE alert_notice ADD COLUMN "taken_by" TEXT[] NOT NULL DEFAULT ARRAY[]::TEXT[];

-- After a leap of the clock, or a time in which nobody was there, workers of ops runs are given time for a sign of life.
ALTER TABLE clock_mark ADD COLUMN "silence_looked_at" TIMESTAMPTZ(6), ADD COLUMN "silence_held_until" TIMESTAMPTZ(6);
