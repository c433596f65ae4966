// The subscriptions that several tests watch.
import { graphql } from '../generated/gql.js';

export const RuleRunProgress = graphql(`
  subscription RuleRunProgress($runId: ID!) {
    ruleRunProgress(runId: $runId) {
      id
      status
      lastSeq
      progress
      allowedActions
      channel {
        name
      }
      counts {
        total
        queued
        applied
      }
    }
  }
`);

export const RunEvents = graphql(`
  subscription RunEvents($runId: ID!, $after: Int) {
    runEvents(runId: $runId, after: $after) {
      id
      runId
      seq
      type
      payload
    }
  }
`);

export const RunChanged = graphql(`
  subscription RunChanged($kind: RunKind, $projectId: String) {
    runChanged(kind: $kind, projectId: $projectId) {
      __typename
      id
      kind
      projectId
      lastSeq
      ... on RuleRun {
        status
      }
    }
  }
`);
