import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openSecretBox } from '../../src/app/secret-key.js';
import { loadConfig } from '../../src/config.js';
import { SecretBox } from '../../src/store/secret-box.js';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'runledger-key-'));
});
afterEach(() => rm(directory, { recursive: true }));

const embedded = (env = {}) => loadConfig({ RUNLEDGER_DATA_DIR: join(directory, 'data'), ...env });
const keyFile = () => join(directory, 'data', 'secret.key');

test('the embedded database gets a key file that its owner alone may read, and keeps it', async () => {
  const [one, two] = await Promise.all([openSecretBox(embedded()), openSecretBox(embedded())]);
  expect(two.keyId).toBe(one.keyId);
  expect((await stat(keyFile())).mode & 0o777).toBe(0o600);
  expect((await openSecretBox(embedded())).keyId).toBe(one.keyId);
});

test('a key in the environment goes before the file’s, which still opens', async () => {
  const sealed = (await openSecretBox(embedded())).seal('x', 'row');
  const key = SecretBox.generateKey();
  const box = await openSecretBox(embedded({ RUNLEDGER_SECRET_KEY: key }));
  expect(box.keyId).toBe(new SecretBox([key]).keyId);
  expect(box.open(sealed, 'row')).toBe('x');
});

test('with a database of one’s own there is no file, and no key unless one is given', async () => {
  const box = await openSecretBox(embedded({ DATABASE_URL: 'postgres://db.example/x' }));
  expect(box.keyId).toBeNull();
  await expect(readFile(keyFile())).rejects.toMatchObject({ code: 'ENOENT' });
});

test('a key file that was cut short stops the start', async () => {
  await openSecretBox(embedded());
  await writeFile(keyFile(), '');
  await expect(openSecretBox(embedded())).rejects.toThrow(/32 bytes/);
});
