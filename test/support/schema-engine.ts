// Prisma's schema engine as WebAssembly: what Prisma's own commands would say of a database and do to it.
// It compares tables, columns, keys, plain indexes and enums; it does
// not see CHECKs, triggers, functions, views and the conditions of partial indexes.
import { readdir, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { PrismaPg } from '@prisma/adapter-pg';
import { bindMigrationAwareSqlAdapterFactory, ColumnTypeEnum } from '@prisma/driver-adapter-utils';
import * as engineModule from '@prisma/schema-engine-wasm/schema_engine_bg';
import pg from 'pg';

/** PostgreSQL's internal one-byte "char", which the catalogs use and the adapter does not know. */
const CHAR_OID = 18;

const NO_FILTER = { externalTables: [], externalEnums: [] };

/** The statements that the database lacks, as SQL; empty when it is what the schema says. */
export async function diffDatabase(url: string, schemaPath: string): Promise<string> {
  const schema = { files: [{ path: schemaPath, content: await readFile(schemaPath, 'utf8') }] };
  return withEngine(url, async (engine) => {
    const { exitCode, stdout } = await engine.diff({
      from: { tag: 'schemaDatasource', configDir: dirname(schemaPath), ...schema },
      to: { tag: 'schemaDatamodel', ...schema },
      script: true,
      exitCode: true,
      filters: NO_FILTER,
    });
    return exitCode === 0 ? '' : (stdout ?? '');
  });
}

/** What `prisma migrate status` would say of a database. */
export async function diagnoseHistory(
  url: string,
  directory: string,
): Promise<engineModule.DiagnoseMigrationHistoryOutput> {
  const migrationsList = await listMigrations(directory);
  return withEngine(url, (engine) =>
    engine.diagnoseMigrationHistory({ migrationsList, optInToShadowDatabase: false, filters: NO_FILTER }),
  );
}

/** What `prisma migrate deploy` does; answers the names of the migrations it applied. */
export async function deployMigrations(url: string, directory: string): Promise<string[]> {
  const migrationsList = await listMigrations(directory);
  const { appliedMigrationNames } = await withEngine(url, (engine) =>
    engine.applyMigrations({ migrationsList, filters: NO_FILTER }),
  );
  return appliedMigrationNames;
}

async function listMigrations(directory: string): Promise<engineModule.MigrationList> {
  const entries = await readdir(directory, { withFileTypes: true });
  const names = entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
  const migrationDirectories = names.sort().map(async (path) => {
    const value = await readFile(join(directory, path, 'migration.sql'), 'utf8');
    return { path, migrationFile: { path: 'migration.sql', content: { tag: 'ok' as const, value } } };
  });
  return {
    baseDir: directory,
    lockfile: { path: 'migration_lock.toml', content: 'provider = "postgresql"\n' },
    shadowDbInitScript: '',
    migrationDirectories: await Promise.all(migrationDirectories),
  };
}

async function withEngine<T>(
  url: string,
  ask: (engine: engineModule.SchemaEngine) => Promise<T>,
): Promise<T> {
  await loadEngine();
  const pool = new pg.Pool({ connectionString: url, max: 1 });
  try {
    const datamodel = 'datasource db {\n  provider = "postgresql"\n}\n';
    const factory = bindMigrationAwareSqlAdapterFactory(new CharAwareFactory(pool));
    const engine = await engineModule.SchemaEngine.new(
      { datamodels: [['schema.prisma', datamodel]] },
      () => {},
      factory,
    );
    try {
      return await ask(engine);
    } finally {
      engine.free();
    }
  } finally {
    await pool.end();
  }
}

/** What is used of WebAssembly; its types stand in the DOM's library, which is not ours. */
interface Compiler {
  instantiate(
    bytes: Uint8Array,
    imports: Record<string, object>,
  ): Promise<{ readonly instance: { readonly exports: Record<string, () => void> } }>;
}

const compiler = (globalThis as unknown as { readonly WebAssembly: Compiler }).WebAssembly;

let loaded: Promise<void> | null = null;

function loadEngine(): Promise<void> {
  loaded ??= instantiate();
  return loaded;
}

async function instantiate(): Promise<void> {
  const require = createRequire(import.meta.url);
  const home = dirname(require.resolve('@prisma/schema-engine-wasm'));
  const bytes = await readFile(join(home, 'schema_engine_bg.wasm'));
  const { instance } = await compiler.instantiate(bytes, { './schema_engine_bg.js': engineModule });
  engineModule.__wbg_set_wasm(instance.exports);
  instance.exports['__wbindgen_start']!();
}

/**
 * The adapter refuses a result that has a "char". So results name it text on the way in, which is read
 * alike, and those columns get the type that the engine asks for on the way out.
 */
class CharAwareFactory extends PrismaPg {
  readonly #chars = new Set<string>();

  constructor(pool: pg.Pool) {
    super(pool);
    const query = pool.query.bind(pool) as (...args: unknown[]) => Promise<pg.QueryResult>;
    pool.query = (async (...args: unknown[]) => this.#nameText(await query(...args))) as never;
  }

  override async connect(): ReturnType<PrismaPg['connect']> {
    const adapter = await super.connect();
    const queryRaw = adapter.queryRaw.bind(adapter);
    adapter.queryRaw = async (query) => {
      const result = await queryRaw(query);
      const columnTypes = result.columnNames.map((name, index) =>
        this.#chars.has(name) ? ColumnTypeEnum.Character : result.columnTypes[index]!,
      );
      return { ...result, columnTypes };
    };
    return adapter;
  }

  #nameText(result: pg.QueryResult): pg.QueryResult {
    for (const field of result.fields) {
      if (field.dataTypeID !== CHAR_OID) continue;
      this.#chars.add(field.name);
      field.dataTypeID = pg.types.builtins.TEXT;
    }
    return result;
  }
}
