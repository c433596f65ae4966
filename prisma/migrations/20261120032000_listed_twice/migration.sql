-- What a source lists more than once: known by its coming twice in two readings on end.

ALTER TABLE "raw_item"
  ADD COLUMN "came_twice" BOOLEAN NOT NULL DEFAULT false,
  ADD COLUMN "listed_twice" BOOLEAN NOT NULL DEFAULT false;
