-- The newest time that the servers have seen. When the clock shows less, it was put back, and what was set to come while
-- it ran ahead would come that much too late.
CREATE TABLE "clock_mark" (
    "id" BOOLEAN NOT NULL DEFAULT true,
    "seen_at" TIMESTAMPTZ(6) NOT NULL,

    CONSTRAINT "clock_mark_pkey" PRIMARY KEY ("id"),
    CONSTRAINT "clock_mark_single" CHECK ("id")
);
INSERT INTO clock_mark (seen_at) VALUES (clock_timestamp());
