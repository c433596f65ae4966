// Which kind of run an id is of.

import type { Api } from './api.js';

const KINDS = ['OpsRun', 'RuleRun', 'PipelineRun'] as const;
export type Kind = (typeof KINDS)[number];

/** Null when it is the id of no run. */
export async function findKind(api: Api, runId: string): Promise<Kind | null> {
  // The id of an ops run tells; a worker's key may ask for nothing else.
  if (runId.startsWith('run-')) {
    const { opsRun } = await api.ask<{ opsRun: object | null }>(
      'query ($id: ID!) { opsRun(id: $id) { id } }',
      {
        id: runId,
      },
    );
    return opsRun && 'OpsRun';
  }
  const { node } = await api.ask<{ node: { __typename: string } | null }>(
    'query ($id: ID!) { node(id: $id) { __typename } }',
    { id: runId },
  );
  return KINDS.find((kind) => kind === node?.__typename) ?? null;
}
