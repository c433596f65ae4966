// Starts the cluster of a test run before the first test and removes it after the last.
import type { TestProject } from 'vitest/node';
import { startTestCluster } from './cluster.js';

declare module 'vitest' {
  export interface ProvidedContext {
    /** A URL that may create databases. */
    adminUrl: string;
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const cluster = await startTestCluster(process.env['RUNLEDGER_TEST_DATABASE_URL']);
  project.provide('adminUrl', cluster.adminUrl);
  return () => cluster.stop();
}
