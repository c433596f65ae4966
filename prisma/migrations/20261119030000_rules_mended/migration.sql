-- When a run that sets itself back is to ask for it once more: a channel that was away at the time left something
-- behind. Until then it is not reverted, as before it was asked at all.
ALTER TABLE "rule_run" ADD COLUMN "revert_again_at" TIMESTAMPTZ(6);
