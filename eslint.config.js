// Lint. Besides the usual rules it keeps the directions of the design: the two tables below say which
// layer of src may import which, and where a package may be used. A layer is a folder or a file of src.
import { dirname, relative, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'eslint/config';
import tseslint from 'typescript-eslint';

const root = dirname(fileURLToPath(import.meta.url));

/** A layer may import itself and what is listed; 'anything' is for where the parts are put together. */
const LAYERS = {
  errors: [],
  domain: [],
  tracing: [],
  redaction: [],
  config: ['errors'],
  postgres: ['errors'],
  store: ['domain', 'errors', 'tracing', 'redaction'],
  connectors: ['domain', 'errors', 'tracing'],
  sandbox: ['domain', 'errors'],
  schema: ['domain', 'errors'],
  events: ['store', 'domain', 'errors'],
  resolvers: ['schema', 'events', 'store', 'domain', 'errors', 'tracing'],
  runner: ['store', 'connectors', 'domain', 'errors', 'tracing'],
  server: ['resolvers', 'schema', 'events', 'store', 'domain', 'errors', 'tracing'],
  client: ['domain'],
  cli: ['client', 'store', 'postgres', 'config', 'domain', 'errors', 'redaction'],
  app: 'anything',
  main: 'anything',
};

/** Layers that import no package, not even Node's. */
const PURE = ['domain', 'errors', 'redaction', 'tracing'];

/** Where in src a package, or a folder of generated code, may be imported. */
const PACKAGE_HOMES = [
  { name: /^pg$/, homes: ['store', 'postgres'] },
  { name: /^@prisma\//, homes: ['store'] },
  { name: /^src\/store\/prisma\//, homes: ['store'] },
  { name: /^@opentelemetry\//, homes: ['app/open-telemetry'] },
  { name: /^pg-listen$/, homes: ['events/listener'] },
  { name: /^type-graphql$/, homes: ['schema', 'resolvers'] },
];

/** src/client runs in browsers: it imports this package, and of the rest of src only types. */
const CLIENT_PACKAGE = 'graphql-ws/client';

/** Who may read the environment. */
const ENVIRONMENT_READERS = ['src/main.ts', 'src/cli/**'];

/** 'store/db' for src/store/db.ts, or null outside src. */
function placeInSrc(path) {
  const place = relative(resolve(root, 'src'), path).split(sep).join('/');
  return place.startsWith('..') ? null : place.replace(/\.[cm]?[jt]s$/, '');
}

const layerOf = (place) => place.split('/')[0];

/** What is wrong with importing `source` into the file at `path`, or null. */
function findFault(path, source, isType) {
  const from = placeInSrc(path);
  if (from === null) return null;
  const layer = layerOf(from);
  const allowed = LAYERS[layer];
  if (allowed === undefined) return `'${layer}' is no layer of src: add it to LAYERS in eslint.config.js`;
  const isRelative = source.startsWith('.');
  const target = isRelative ? placeInSrc(resolve(dirname(path), source)) : null;
  const name = isRelative ? `src/${target}` : source;
  const home = PACKAGE_HOMES.find((each) => each.name.test(name))?.homes;
  if (home && !home.some((place) => from === place || from.startsWith(`${place}/`))) {
    return `${source} may be imported in src/${home.join(' and src/')} only`;
  }
  if (layer === 'client' && !isType && source !== CLIENT_PACKAGE && layerOf(target ?? '') !== 'client') {
    return `client runs in browsers, so it may not import ${source}, or only its types`;
  }
  if (!isRelative) return PURE.includes(layer) ? `${layer} imports no packages` : null;
  if (target === null) return 'src imports nothing from outside src';
  const isAllowed = allowed === 'anything' || layerOf(target) === layer || allowed.includes(layerOf(target));
  return isAllowed ? null : `${layer} may not import ${layerOf(target)}`;
}

const importDirections = {
  meta: { type: 'problem', schema: [], messages: { fault: '{{ fault }}' } },
  create(context) {
    const check = ({ type, source, importKind, exportKind }) => {
      if (typeof source?.value !== 'string') return;
      const isType = type === 'TSImportType' || importKind === 'type' || exportKind === 'type';
      const fault = findFault(context.filename, source.value, isType);
      if (fault !== null) context.report({ node: source, messageId: 'fault', data: { fault } });
    };
    return {
      ImportDeclaration: check,
      ImportExpression: check,
      ExportNamedDeclaration: check,
      ExportAllDeclaration: check,
      TSImportType: check,
    };
  },
};

const environmentRules = {
  'no-restricted-properties': ['error', { object: 'process', property: 'env', message: 'Take a Config.' }],
  'no-restricted-imports': [
    'error',
    { paths: ['process', 'node:process'].map((name) => ({ name, message: 'Use the global.' })) },
  ],
};

export default defineConfig(
  {
    ignores: ['dist', '.cache', '.runledger', 'src/store/prisma', 'test/generated'],
  },
  { linterOptions: { reportUnusedDisableDirectives: 'error' } },
  {
    files: ['**/*.{js,mjs,ts,tsx}'],
    extends: [tseslint.configs.recommended, tseslint.configs.stylistic],
    rules: {
      eqeqeq: 'error',
      'no-console': 'off',
      'no-constant-binary-expression': 'error',
      'no-unreachable': 'error',
      'no-self-compare': 'error',
      'no-template-curly-in-string': 'error',
      'prefer-const': 'error',
      'object-shorthand': 'error',
      // Several `!` stand on an index that the line before has checked.
      '@typescript-eslint/no-non-null-assertion': 'off',
      '@typescript-eslint/no-empty-function': 'off',
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_', varsIgnorePattern: '^_' }],
    },
  },
  {
    // A promise that nobody awaits is an error that nobody sees: worth a type check of the project.
    files: ['{src,test,bench}/**/*.ts'],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: root } },
    rules: {
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/no-misused-promises': ['error', { checksVoidReturn: false }],
      '@typescript-eslint/await-thenable': 'error',
    },
  },
  {
    files: ['src/**/*.ts'],
    plugins: { runledger: { rules: { 'import-directions': importDirections } } },
    rules: {
      'runledger/import-directions': 'error',
      'max-lines': ['error', 300],
      'max-lines-per-function': ['error', 50],
    },
  },
  { files: ['src/**/*.ts'], ignores: ENVIRONMENT_READERS, rules: environmentRules },
);
