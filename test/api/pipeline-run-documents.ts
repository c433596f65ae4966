// The operations on pipeline runs that several tests use.
import { graphql } from '../generated/gql.js';
import type { StartPipelineRunInput } from '../generated/graphql.js';
import type { ApiClient } from './support.js';

const StartPipelineRun = graphql(`
  mutation StartPipelineRun($input: StartPipelineRunInput!) {
    startPipelineRun(input: $input) {
      pipelineRun {
        id
        status
        runType
        watermarkBefore
        source {
          id
          name
        }
        allowedActions
      }
      userErrors {
        code
        message
        field
        details
      }
    }
  }
`);

export const CancelPipelineRun = graphql(`
  mutation CancelPipelineRun($runId: ID!, $idempotencyKey: String) {
    cancelPipelineRun(input: { runId: $runId, idempotencyKey: $idempotencyKey }) {
      pipelineRun {
        id
        status
        finishedAt
        allowedActions
      }
      userErrors {
        code
        message
        field
        details
      }
    }
  }
`);

export const RetryFailedPartitions = graphql(`
  mutation RetryFailedPartitions($runId: ID!) {
    retryFailedPartitions(input: { runId: $runId }) {
      pipelineRun {
        id
        status
        failedWorkers
        error
      }
      userErrors {
        code
        message
        field
        details
      }
    }
  }
`);

export const ConsolidatePipelineRun = graphql(`
  mutation ConsolidatePipelineRun($runId: ID!, $force: Boolean) {
    consolidatePipelineRun(input: { runId: $runId, force: $force }) {
      pipelineRun {
        id
        status
      }
      userErrors {
        code
        message
        field
        details
      }
    }
  }
`);

const WholePipelineRun = graphql(`
  query WholePipelineRun($id: ID!) {
    pipelineRun(id: $id) {
      id
      kind
      projectId
      status
      runType
      source {
        id
        name
        kind
        watermark
        lastRunId
      }
      expectedWorkers
      completedWorkers
      failedWorkers
      recordsProcessed
      recordsConsolidated
      recordsDuplicated
      recordsRejected
      recordsMissing
      recordsDeleted
      watermarkBefore
      watermarkAfter
      startedAt
      finishedAt
      createdAt
      metadata
      lastSeq
      error
      actor
      allowedActions
      partitions {
        partitionId
        status
        nextOffset
        completed
        recordsProcessed
        attempts
        errorMessage
        payload
        startedAt
        completedAt
        updatedAt
        stuck
      }
      rejectedRecords {
        nodes {
          id
          partitionId
          externalId
          reason
          payload
        }
      }
      events {
        nodes {
          seq
          type
          level
        }
      }
    }
  }
`);

export const PipelineRunProgress = graphql(`
  subscription PipelineRunProgress($runId: ID!) {
    pipelineRunProgress(runId: $runId) {
      id
      status
      expectedWorkers
      completedWorkers
      recordsProcessed
      recordsConsolidated
      lastSeq
    }
  }
`);

export async function startRun(client: ApiClient, input: StartPipelineRunInput) {
  return (await client.ask(StartPipelineRun, { input })).startPipelineRun;
}

export async function readRun(client: ApiClient, id: string) {
  return (await client.ask(WholePipelineRun, { id })).pipelineRun;
}
