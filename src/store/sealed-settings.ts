// Settings as rows keep them: the config with a mask for each credential, so that it may be shown, and the
// credentials sealed beside it. Sealed credentials open for the row that they were sealed for and for no
// other. Called by the stores of what has settings.

import {
  holdsMask,
  isSettings,
  leadElsewhere,
  maskSettings,
  pickSecrets,
  unmaskValue,
  type Settings,
} from '../domain/settings.js';
import { AppError } from '../errors.js';
import { keepSecret } from '../redaction.js';
import type { Database } from './db.js';
import type { SecretBox } from './secret-box.js';

/** The tables that have such rows. */
const SEALED_TABLES = ['channel', 'source', 'alert_sink', 'webhook_endpoint'] as const;
type SealedTable = (typeof SEALED_TABLES)[number];

export interface SealedRow {
  readonly id: string;
  readonly config: unknown;
  readonly secrets: string | null;
  readonly secretsKeyId: string | null;
}

type Columns = Omit<SealedRow, 'id'> & { readonly config: Settings };

/** The settings whole, with their credentials. */
export function openSettings(box: SecretBox, table: SealedTable, row: SealedRow): Settings {
  return { ...(row.config as Settings), ...openSecrets(box, table, row) };
}

function openSecrets(box: SecretBox, table: SealedTable, { id, secrets, secretsKeyId }: SealedRow): Settings {
  if (secrets === null || secretsKeyId === null) return {};
  const opened = JSON.parse(box.open({ keyId: secretsKeyId, text: secrets }, boundTo(table, id))) as Settings;
  keepSecret(opened);
  return opened;
}

/** What a row is to hold of the settings. */
export function sealSettings(
  box: SecretBox,
  table: SealedTable,
  id: string,
  settings: Settings,
  secretNames: readonly string[],
): Columns {
  const config = maskSettings(settings, secretNames);
  const secrets = pickSecrets(settings, secretNames);
  keepSecret(secrets);
  if (Object.keys(secrets).length === 0) return { config, secrets: null, secretsKeyId: null };
  const { text, keyId } = box.seal(JSON.stringify(secrets), boundTo(table, id));
  return { config, secrets: text, secretsKeyId: keyId };
}

function boundTo(table: SealedTable, id: string): string {
  return `${table} ${id}`;
}

/**
 * What a client gives, with what is stored wherever it left a mask. A stored credential goes nowhere else than
 * before: whoever may save settings need not know it, and could else have it sent to themselves.
 */
export function completeSettings(given: unknown, stored: Settings | null): Settings {
  if (!isSettings(given)) throw unfit('config must be a JSON object.');
  const config = unmaskValue(given, stored) as Settings;
  if (holdsMask(config))
    throw unfit('config holds a mask where no credential is stored: give the credential.');
  if (stored !== null && holdsMask(given) && leadElsewhere(config, stored))
    throw unfit('config names another host than before: give the credentials for it, not a mask.');
  return config;
}

function unfit(message: string): AppError {
  return new AppError('INVALID_INPUT', message, { field: ['input', 'config'] });
}

/**
 * Seals anew, with the key of today, whatever a former key has sealed; answers how many rows that was. What a key has
 * sealed that is not here is left to whoever has it.
 */
export async function resealSettings(db: Database, box: SecretBox): Promise<number> {
  let resealed = 0;
  for (const table of SEALED_TABLES) resealed += await resealTable(db, box, table);
  return resealed;
}

async function resealTable(db: Database, box: SecretBox, table: SealedTable): Promise<number> {
  const { keyId } = box;
  if (keyId === null) return 0;
  const rows = await db.query<SealedRow & { readonly secrets: string }>(
    `SELECT id, config, secrets, secrets_key_id AS "secretsKeyId" FROM ${table} WHERE secrets_key_id = ANY($1)`,
    [box.formerKeyIds],
  );
  let resealed = 0;
  for (const row of rows) {
    const { text } = box.seal(JSON.stringify(openSecrets(box, table, row)), boundTo(table, row.id));
    // Somebody may have saved it in between: what they saved is newer.
    const done = await db.query(
      `UPDATE ${table} SET secrets = $2, secrets_key_id = $3 WHERE id = $1 AND secrets = $4 RETURNING 1`,
      [row.id, text, keyId, row.secrets],
    );
    resealed += done.length;
  }
  return resealed;
}
