-- A channel's credentials, sealed by the server's key; `config` holds a mask in their place. The key's id
-- tells which rows a rotation has still to seal anew.
ALTER TABLE "channel" ADD COLUMN "secrets" TEXT, ADD COLUMN "secrets_key_id" TEXT;

ALTER TABLE "channel" ADD CONSTRAINT "channel_secrets" CHECK (("secrets" IS NULL) = ("secrets_key_id" IS NULL));
