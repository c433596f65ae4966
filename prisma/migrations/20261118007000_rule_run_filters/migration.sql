-- The lists of rule runs. Each filter has an index in the order of the list, so that a page costs what it
-- shows. Of their columns only the status ever changes: the many updates of a run's counters leave them alone.
CREATE INDEX "rule_run_tenant_id_created_at_id_idx" ON "rule_run"("tenant_id", "created_at", "id");
CREATE INDEX "rule_run_tenant_id_status_created_at_id_idx" ON "rule_run"("tenant_id", "status", "created_at", "id");
CREATE INDEX "rule_run_tenant_id_project_id_created_at_id_idx" ON "rule_run"("tenant_id", "project_id", "created_at", "id");
CREATE INDEX "rule_run_tenant_id_correlation_id_idx" ON "rule_run"("tenant_id", "correlation_id");
CREATE INDEX "rule_run_channel_id_created_at_id_idx" ON "rule_run"("channel_id", "created_at", "id");

-- Words in a run's metadata, for people who look for a ticket or a campaign: in a table of their own, since a
-- run's row changes with every batch and would take the index along. Whatever is no letter or digit parts
-- words, here and in what is looked for, of which each word may be just the beginning.
CREATE TABLE "rule_run_words" (
    "run_id" UUID NOT NULL,
    "tenant_id" TEXT NOT NULL,
    "words" TSVECTOR NOT NULL,

    CONSTRAINT "rule_run_words_pkey" PRIMARY KEY ("run_id")
);

CREATE INDEX "rule_run_words_words_idx" ON "rule_run_words" USING GIN ("words");

ALTER TABLE "rule_run_words" ADD CONSTRAINT "rule_run_words_run_id_tenant_id_fkey" FOREIGN KEY ("run_id", "tenant_id") REFERENCES "rule_run"("id", "tenant_id") ON DELETE CASCADE ON UPDATE CASCADE;

CREATE FUNCTION words_of(value text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN trim(regexp_replace(lower(value), '[^[:alnum:]]+', ' ', 'g'));

-- NULL, which nothing matches, for a text without a word.
CREATE FUNCTION words_query(value text) RETURNS tsquery
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN to_tsquery('simple'::regconfig, replace(nullif(words_of(value), ''), ' ', ':* & ') || ':*');

-- A tsvector holds a megabyte: no metadata is too long to be kept, only to be found by its end.
CREATE FUNCTION keep_metadata_words() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO rule_run_words (run_id, tenant_id, words)
  VALUES (NEW.id, NEW.tenant_id, to_tsvector('simple', words_of(left(NEW.metadata::text, 100000))))
  ON CONFLICT (run_id) DO UPDATE SET words = excluded.words;
  RETURN NULL;
END
$$;

CREATE TRIGGER "rule_run_words" AFTER INSERT OR UPDATE OF "metadata" ON "rule_run"
  FOR EACH ROW EXECUTE FUNCTION keep_metadata_words();
