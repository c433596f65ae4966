// The operations of ops runs, as the tests send them.
import { graphql } from '../generated/index.js';

export const QUEUE = graphql(`
  mutation QueueOpsRun($input: QueueOpsRunInput!) {
    queueOpsRun(input: $input) {
      opsRun {
        id
        kind
        status
        projectId
        env
        gitSha
        gitRef
        claimedBy
        attempt
        idempotencyKey
        metadata
        lastSeq
        startedAt
        finishedAt
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

export const CLAIM = graphql(`
  mutation ClaimNextOpsRun($input: ClaimNextOpsRunInput!) {
    claimNextOpsRun(input: $input) {
      opsRun {
        id
        status
        env
        claimedBy
        attempt
        metadata
        startedAt
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

export const APPEND = graphql(`
  mutation AppendOpsRunEvent($input: AppendOpsRunEventInput!) {
    appendOpsRunEvent(input: $input) {
      event {
        id
        runId
        runKind
        seq
        type
        level
        message
        payload
        actor
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

export const HEARTBEAT = graphql(`
  mutation HeartbeatOpsRun($input: OpsRunClaimInput!) {
    heartbeatOpsRun(input: $input) {
      opsRun {
        status
        heartbeatAt
      }
      cancelled
      userErrors {
        code
        message
        field
        details
      }
    }
  }
`);

export const FINISH = graphql(`
  mutation FinishOpsRun($input: FinishOpsRunInput!) {
    finishOpsRun(input: $input) {
      opsRun {
        id
        status
        metadata
        finishedAt
        artifacts {
          type
          url
        }
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

export const CANCEL = graphql(`
  mutation CancelOpsRun($input: CancelOpsRunInput!) {
    cancelOpsRun(input: $input) {
      opsRun {
        id
        status
        claimedBy
        metadata
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

export const RUN = graphql(`
  query OpsRun($id: ID!) {
    opsRun(id: $id) {
      id
      status
      claimedBy
      metadata
      lastSeq
      events {
        nodes {
          id
          runId
          seq
          type
          level
          message
          payload
          actor
        }
      }
    }
  }
`);

export const RUNS = graphql(`
  query OpsRuns(
    $first: Int
    $after: String
    $status: [OpsRunStatus!]
    $projectId: String
    $env: String
    $claimedBy: String
  ) {
    opsRuns(
      first: $first
      after: $after
      status: $status
      projectId: $projectId
      env: $env
      claimedBy: $claimedBy
    ) {
      nodes {
        id
        env
        status
      }
      pageInfo {
        hasNextPage
        hasPreviousPage
        endCursor
      }
      totalCount
    }
  }
`);

export const NODE = graphql(`
  query OpsRunNode($id: ID!) {
    node(id: $id) {
      __typename
      id
      ... on OpsRun {
        env
      }
    }
  }
`);

export const PROGRESS = graphql(`
  subscription OpsRunProgress($runId: ID!) {
    opsRunProgress(runId: $runId) {
      id
      status
      lastSeq
    }
  }
`);

export const EVENTS = graphql(`
  subscription OpsRunEvents($runId: ID!, $after: Int) {
    runEvents(runId: $runId, after: $after) {
      runId
      seq
      type
      message
    }
  }
`);

export const CHANGED = graphql(`
  subscription OpsRunChanged($kind: RunKind, $projectId: String) {
    runChanged(kind: $kind, projectId: $projectId) {
      __typename
      id
      kind
      ... on OpsRun {
        status
      }
    }
  }
`);
