// `npm run generate`: writes what is derived from the code and committed: schema.graphql, the document and
// the SQL of the machines; then the typed documents of the tests, which are not committed. With --check it
// writes nothing that is committed, and fails when some of it is stale.
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { prepare, prepareDocuments } from './lib/prepare.mjs';
import { inProject, main, StepFailed } from './lib/project.mjs';

/** A machine that has changed since it was released needs a new migration: add an empty one, named so. */
function newestMachinesMigration() {
  const names = readdirSync(inProject('prisma/migrations')).filter((name) => name.endsWith('_machines'));
  return `prisma/migrations/${names.sort().at(-1)}/migration.sql`;
}

async function renderAll() {
  const { lexicographicSortSchema, printSchema } = await import('graphql');
  const { buildGraphqlSchema } = await import('../dist/resolvers/schema.js');
  const { MACHINES } = await import('../dist/domain/machines.js');
  const { renderMachineDocument } = await import('../dist/domain/machine-document.js');
  const { renderMachineSql } = await import('../dist/store/machine-sql.js');
  return {
    'schema.graphql': `${printSchema(lexicographicSortSchema(buildGraphqlSchema()))}\n`,
    'docs/state-machines.md': renderMachineDocument(MACHINES),
    [newestMachinesMigration()]: renderMachineSql(MACHINES),
  };
}

function isStale([path, text]) {
  const file = inProject(path);
  return !existsSync(file) || readFileSync(file, 'utf8') !== text;
}

function write([path, text]) {
  mkdirSync(dirname(inProject(path)), { recursive: true });
  writeFileSync(inProject(path), text);
  console.log(`wrote ${path}`);
}

await main(async () => {
  await prepare();
  const stale = Object.entries(await renderAll()).filter(isStale);
  if (process.argv.includes('--check') && stale.length > 0) {
    const paths = stale.map(([path]) => `  ${path}`).join('\n');
    throw new StepFailed(`Generated files are stale; run \`npm run generate\` and commit:\n${paths}`);
  }
  stale.forEach(write);
  await prepareDocuments();
});
