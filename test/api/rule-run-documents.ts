// The operations on rule runs that several tests send, and short ways to send them.
import type { CreateRuleRunInput, RuleTargetInput } from '../generated/graphql.js';
import { graphql } from '../generated/gql.js';
import { targetsOf, type Tenant } from '../support/fixtures.js';
import type { ApiClient } from './support.js';

graphql(`
  fragment Refusals on Payload {
    userErrors {
      code
      message
      field
      details
    }
  }
`);

const CreateRuleRun = graphql(`
  mutation CreateRuleRun($input: CreateRuleRunInput!) {
    createRuleRun(input: $input) {
      ruleRun {
        id
        status
        counts {
          total
          preview
        }
      }
      ...Refusals
    }
  }
`);

const AddRuleTargets = graphql(`
  mutation AddRuleTargets($runId: ID!, $targets: [RuleTargetInput!]!) {
    addRuleTargets(input: { runId: $runId, targets: $targets }) {
      ruleRun {
        id
        counts {
          total
        }
      }
      ...Refusals
    }
  }
`);

const QueueRuleRun = graphql(`
  mutation QueueRuleRun($runId: ID!, $idempotencyKey: String) {
    queueRuleRun(input: { runId: $runId, idempotencyKey: $idempotencyKey }) {
      ruleRun {
        id
        status
        queuedAt
        allowedActions
        counts {
          queued
        }
      }
      ...Refusals
    }
  }
`);

export async function create(client: ApiClient, input: CreateRuleRunInput) {
  return (await client.ask(CreateRuleRun, { input })).createRuleRun;
}

export async function add(client: ApiClient, runId: string, targets: RuleTargetInput[]) {
  return (await client.ask(AddRuleTargets, { runId, targets })).addRuleTargets;
}

export async function queue(client: ApiClient, runId: string, idempotencyKey: string | null = null) {
  return (await client.ask(QueueRuleRun, { runId, idempotencyKey })).queueRuleRun;
}

/** Input for a run of the tenant that nothing is wrong with. */
export function inputFor(tenant: Tenant, overrides: Partial<CreateRuleRunInput> = {}): CreateRuleRunInput {
  return { channelId: tenant.channelId, targets: targetsOf(3), ...overrides };
}

/** The id of a new run in PREVIEW. */
export async function makeRun(
  client: ApiClient,
  tenant: Tenant,
  overrides: Partial<CreateRuleRunInput> = {},
): Promise<string> {
  return (await create(client, inputFor(tenant, overrides))).ruleRun!.id;
}
