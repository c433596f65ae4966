-- A comparison goes on past items whose price could not be read: those to be read again at the end, and how many
-- could not be. What is known of each stands among the details, beside the mismatches.
ALTER TABLE "reconciliation"
  ADD COLUMN "again" BIGINT[] NOT NULL DEFAULT ARRAY[]::BIGINT[],
  ADD COLUMN "unread" INTEGER NOT NULL DEFAULT 0;

ALTER TABLE "reconciliation_report" ADD COLUMN "unread" INTEGER NOT NULL DEFAULT 0;
