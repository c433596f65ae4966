// The keys that credentials are encrypted with. With a database of one's own they come from the environment
// alone; the embedded one has a key file beside its data, made at the first start, that only its owner reads.
// A key in the environment goes before it, so that the file's becomes a former key. Called by app.

import { mkdir, open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Config } from '../config.js';
import { keepOwnSecret } from '../redaction.js';
import { SecretBox } from '../store/secret-box.js';

const FILE_NAME = 'secret.key';

export async function openSecretBox({ secretKeys, database }: Config): Promise<SecretBox> {
  if (database.kind === 'external') return new SecretBox(secretKeys);
  return new SecretBox([...secretKeys, await ensureKeyFile(database.dataDir)]);
}

async function ensureKeyFile(dataDir: string): Promise<string> {
  const path = join(dataDir, FILE_NAME);
  await mkdir(dataDir, { recursive: true });
  try {
    // Only one process creates it, and nobody else ever reads it.
    const file = await open(path, 'wx', 0o600);
    try {
      await file.writeFile(`${SecretBox.generateKey()}\n`);
      await file.sync();
    } finally {
      await file.close();
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
  const key = (await readFile(path, 'utf8')).trim();
  keepOwnSecret(key);
  return key;
}
