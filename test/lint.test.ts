// The import directions and the sizes of the design are lint errors: code at a place in src is judged as if it stood
// there.
import { resolve } from 'node:path';
import { ESLint } from 'eslint';
import { describe, expect, test } from 'vitest';

const KEPT = [
  'runledger/import-directions',
  'no-restricted-properties',
  'no-restricted-imports',
  'max-lines',
  'max-lines-per-function',
];

const eslint = new ESLint({
  cwd: resolve(import.meta.dirname, '..'),
  // The files do not exist, so there is no project to take their types from.
  overrideConfig: { languageOptions: { parserOptions: { projectService: false } } },
  ruleFilter: ({ ruleId }) => KEPT.includes(ruleId),
});

async function faultsOf(path: string, code: string): Promise<string[]> {
  const results = await eslint.lintText(code, { filePath: resolve(import.meta.dirname, '..', path) });
  return results.flatMap(({ messages }) => messages.map(({ message }) => message));
}

describe('forbidden', () => {
  test.each([
    ['src/domain/x.ts', "import '../errors.js';", 'domain may not import errors'],
    ['src/domain/x.ts', "import { z } from 'zod';", 'domain imports no packages'],
    ['src/domain/x.ts', "import { join } from 'node:path';", 'domain imports no packages'],
    ['src/domain/x.ts', "import type { Db } from '../store/db.js';", 'domain may not import store'],
    ['src/store/x.ts', "import '../events/feed.js';", 'store may not import events'],
    ['src/store/x.ts', "import '../config.js';", 'store may not import config'],
    ['src/events/x.ts', "import '../resolvers/rule-run.js';", 'events may not import resolvers'],
    ['src/connectors/shopify/x.ts', "import '../../store/db.js';", 'connectors may not import store'],
    ['src/sandbox/x.ts', "import '../connectors/channel.js';", 'sandbox may not import connectors'],
    ['src/schema/x.ts', "import '../store/db.js';", 'schema may not import store'],
    ['src/resolvers/x.ts', "import '../runner/loop.js';", 'resolvers may not import runner'],
    ['src/runner/x.ts', "import '../resolvers/rule-run.js';", 'runner may not import resolvers'],
    ['src/runner/units/x.ts', "await import('../../server/http.js');", 'runner may not import server'],
    ['src/server/x.ts', "export * from '../runner/loop.js';", 'server may not import runner'],
    ['src/server/x.ts', "export { a } from '../app.js';", 'server may not import app'],
    ['src/postgres/x.ts', "type A = import('../store/db.js').Db;", 'postgres may not import store'],
    ['src/cli/x.ts', "import '../server/http.js';", 'cli may not import server'],
    ['src/client/x.ts', "import type { Db } from '../store/db.js';", 'client may not import store'],
    ['src/client/x.ts', "import { RUN_KINDS } from '../domain/run.js';", 'client runs in browsers'],
    ['src/client/x.ts', "import { WebSocket } from 'ws';", 'client runs in browsers'],
    ['src/app.ts', "import '../test/support/cluster.js';", 'src imports nothing from outside src'],
    ['src/extras/x.ts', "import 'zod';", "'extras' is no layer of src"],
  ])('%s: %s', async (path, code, message) => {
    expect(await faultsOf(path, code)).toEqual([expect.stringContaining(message)]);
  });

  test.each([
    ['src/events/x.ts', "import pg from 'pg';"],
    ['src/app.ts', "import pg from 'pg';"],
    ['src/runner/x.ts', "import { PrismaPg } from '@prisma/adapter-pg';"],
    ['src/runner/x.ts', "import { PrismaClient } from '../store/prisma/client.js';"],
    ['src/events/feed.ts', "import createSubscriber from 'pg-listen';"],
    ['src/store/x.ts', "import createSubscriber from 'pg-listen';"],
    ['src/server/x.ts', "import { buildSchema } from 'type-graphql';"],
  ])('%s: the package in %s', async (path, code) => {
    expect(await faultsOf(path, code)).toEqual([expect.stringMatching(/may be imported in src\/.* only/)]);
  });

  test.each([
    ['src/app.ts', 'export const port = process.env.PORT;'],
    ['src/config.ts', "export const port = process.env['PORT'];"],
    ['src/store/x.ts', 'export const { env } = process;'],
    ['src/store/x.ts', "import { env } from 'node:process'; export default env;"],
  ])('%s reads the environment: %s', async (path, code) => {
    expect(await faultsOf(path, code)).toHaveLength(1);
  });
});

describe('sizes', () => {
  const file = (lines: number): string => '//\n'.repeat(lines - 1) + '//';
  const whole = (lines: number): string => `export function f() {\n${'//\n'.repeat(lines - 2)}}`;

  test('a file of src has at most 300 lines, a function 50', async () => {
    for (const code of [file(300), whole(50)]) expect(await faultsOf('src/store/x.ts', code)).toEqual([]);
    expect(await faultsOf('src/store/x.ts', file(301))).toEqual([expect.stringContaining('(301)')]);
    expect(await faultsOf('src/store/x.ts', whole(51))).toEqual([expect.stringContaining('(51)')]);
  });

  test('tests tell long stories', async () => {
    for (const code of [file(301), whole(51)]) expect(await faultsOf('test/x.test.ts', code)).toEqual([]);
  });
});

describe('allowed', () => {
  test.each([
    ['src/domain/x.ts', "import './money.js';"],
    [
      'src/client/x.ts',
      "import { createClient } from 'graphql-ws/client'; import type { RunKind } from '../domain/run.js';",
    ],
    ['src/cli/watch/x.ts', "import { RunledgerClient } from '../../client/index.js';"],
    [
      'src/store/x.ts',
      "import pg from 'pg'; import '../domain/money.js'; import '../errors.js'; import './db.js';",
    ],
    [
      'src/store/deep/x.ts',
      "import { PrismaClient } from '../prisma/client.js'; import { PrismaPg } from '@prisma/adapter-pg';",
    ],
    ['src/events/listener.ts', "import createSubscriber from 'pg-listen'; import '../store/db.js';"],
    [
      'src/connectors/shopify/x.ts',
      "import '../channel.js'; import '../../domain/money.js'; import 'graphql';",
    ],
    ['src/schema/x.ts', "import { ObjectType } from 'type-graphql'; import '../domain/rule-run.js';"],
    [
      'src/resolvers/x.ts',
      "import { buildSchema } from 'type-graphql'; import '../schema/run.js'; import '../events/feed.js';",
    ],
    ['src/runner/x.ts', "import '../store/claim.js'; import '../connectors/channel.js';"],
    ['src/server/x.ts', "import '../resolvers/schema.js'; import 'fastify';"],
    [
      'src/cli/main.ts',
      "import '../postgres/embedded-postgres.js'; import '../config.js'; console.log(process.env);",
    ],
    ['src/main.ts', "import './app.js'; import './config.js'; console.log(process.env);"],
    ['src/app.ts', "import './server/http.js'; import './runner/loop.js'; import './sandbox/server.js';"],
    [
      'test/runner/x.test.ts',
      "import pg from 'pg'; import '../../src/resolvers/x.js'; console.log(process.env);",
    ],
  ])('%s: %s', async (path, code) => {
    expect(await faultsOf(path, code)).toEqual([]);
  });
});
