// `runledger keys`: makes, lists and revokes API keys, straight in the database: for the first key of a server
// or of a tenant, and for the day that nobody has one any more.

import { ROLES } from '../domain/viewer.js';
import { createApiKey, ensureTenant, listApiKeys, revokeApiKey, type ApiKeyRow } from '../store/api-key.js';
import type { Database } from '../store/db.js';
import { EXIT, UsageError, type Arguments, type Command } from './command.js';
import { DATABASE_OPTIONS, withDatabase } from './database.js';

export const keysCommand: Command = {
  name: 'keys',
  summary: 'create, list and revoke API keys',
  operands: 'create | list | revoke KEY',
  description:
    '  create      make a key, and print it: once, alone on standard output; only its hash is kept\n' +
    '  list        show the keys of a tenant, without the keys themselves\n' +
    '  revoke KEY  end a key, named by its id; open connections that it let in end at once\n\n' +
    'Works on the database itself, so no key is needed to make one. A tenant comes into being with its first key.',
  options: {
    ...DATABASE_OPTIONS,
    tenant: { type: 'string', value: 'NAME', help: 'whose keys', fallback: 'default' },
    name: { type: 'string', value: 'NAME', help: 'create: what people call it (needed)' },
    role: { type: 'string', value: 'ROLE', help: `create: ${ROLES.join(', ')}`, fallback: 'OPERATOR' },
    json: { type: 'boolean', help: 'print JSON' },
  },
  run: keys,
};

async function keys(args: Arguments): Promise<number> {
  const verb = VERBS[args.operands[0] ?? ''];
  if (!verb) throw new UsageError('keys takes create, list or revoke');
  if (args.operands.length !== verb.operands + 1) {
    throw new UsageError(
      `keys ${args.operands[0]} takes ${verb.operands === 0 ? 'options only' : 'one key'}`,
    );
  }
  const prepared = verb.prepare(args);
  return withDatabase(process.env, { url: args.text('database'), prepare: true }, async (db) => {
    await prepared(db);
    return EXIT.success;
  });
}

interface Verb {
  readonly operands: number;
  /** Reads the arguments, so that a mistake is told before anything is touched. */
  readonly prepare: (args: Arguments) => (db: Database) => Promise<void>;
}

const VERBS: Readonly<Record<string, Verb>> = {
  create: {
    operands: 0,
    prepare: (args) => {
      const key = {
        tenantId: args.required('tenant'),
        name: args.required('name'),
        role: args.oneOf('role', ROLES),
      };
      return async (db) => {
        await ensureTenant(db, key.tenantId);
        const { key: row, secret } = await createApiKey(db, key);
        if (args.flag('json')) return console.log(JSON.stringify({ ...row, secret }));
        console.error(
          `Key ${row.name} (${row.role} of ${row.tenantId}, id ${row.id}). It is shown this once:`,
        );
        console.log(secret);
      };
    },
  },
  list: {
    operands: 0,
    prepare: (args) => async (db) => {
      const rows = await listApiKeys(db, args.required('tenant'));
      if (args.flag('json')) return rows.forEach((row) => console.log(JSON.stringify(row)));
      for (const line of tabulate(rows)) console.log(line);
    },
  },
  revoke: {
    operands: 1,
    prepare: (args) => async (db) => {
      const row = await revokeApiKey(db, args.required('tenant'), args.operands[1]!);
      if (args.flag('json')) console.log(JSON.stringify(row));
      else console.log(`Key ${row.name} (${row.id}) is revoked since ${row.revokedAt!.toISOString()}.`);
    },
  },
};

function tabulate(rows: readonly ApiKeyRow[]): string[] {
  const table = [
    ['ID', 'NAME', 'ROLE', 'BEGINS', 'CREATED', 'LAST USED', 'REVOKED'],
    ...rows.map(({ id, name, role, prefix, createdAt, lastUsedAt, revokedAt }) => [
      id,
      name,
      role,
      `${prefix}…`,
      ...[createdAt, lastUsedAt, revokedAt].map((time) => time?.toISOString().slice(0, 16) ?? '-'),
    ]),
  ];
  const widths = table[0]!.map((_, column) => Math.max(...table.map((row) => row[column]!.length)));
  return table.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column]!))
      .join('  ')
      .trimEnd(),
  );
}
