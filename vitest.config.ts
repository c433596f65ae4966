import { defineConfig } from 'vitest/config';

export default defineConfig({
  resolve: {
    // graphql has an ESM and a CommonJS build; two of them in one process do not know each other's types.
    alias: [{ find: /^graphql$/, replacement: 'graphql/index.js' }],
  },
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    pool: 'forks',
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 60_000,
  },
});
