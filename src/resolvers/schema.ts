// The schema, put together from the resolvers: one line each. Called by app, by the tests and by
// `npm run generate`, which writes it to schema.graphql.

import 'reflect-metadata';
import type { GraphQLSchema } from 'graphql';
import { buildSchemaSync, type PubSub } from 'type-graphql';
import { AlertSinkResolver } from './alert-sink.js';
import { AlertResolver } from './alert.js';
import { authoriseSchema } from './authorise.js';
import { CatalogItemResolver } from './catalog-item.js';
import { ChannelResolver } from './channel.js';
import { GuardrailResolver } from './guardrail.js';
import { DeadLetterResolver } from './dead-letter.js';
import { NodeResolver } from './node.js';
import { OpsRunMutationResolver } from './ops-run-mutation.js';
import { OpsRunResolver } from './ops-run.js';
import { PipelineRunMutationResolver } from './pipeline-run-mutation.js';
import { PipelineRunResolver } from './pipeline-run.js';
import { PricingRuleResolver } from './pricing-rule.js';
import { RetentionResolver } from './retention.js';
import { RulePreviewResolver } from './rule-preview.js';
import { RuleRunControlResolver } from './rule-run-control.js';
import { ReconciliationResolver } from './reconciliation.js';
import { RuleRunMutationResolver } from './rule-run-mutation.js';
import { RuleRunResolver } from './rule-run.js';
import { RuleTargetResolver } from './rule-target.js';
import { RunResolver } from './run.js';
import { ScheduleResolver } from './schedule.js';
import { SourceResolver } from './source.js';
import { StateMachineResolver } from './state-machine.js';
import { WebhookEndpointResolver } from './webhook-endpoint.js';
import { WorkerResolver } from './worker.js';

/** type-graphql asks for one; every subscription here brings its own source. */
const NO_PUBSUB: PubSub = {
  publish: () => {
    throw new Error('nothing is published in the process: the ledger is the source of every event');
  },
  subscribe: () => {
    throw new Error('a subscription must name its source by `subscribe`');
  },
};

const ROOT_DESCRIPTIONS = {
  Query:
    'Reading. Everything is scoped to the tenant of the API key: what another tenant has does not exist.',
  Mutation:
    'Changing. Each mutation takes one `input`; what a person can cause and mend is told in `userErrors`, and has changed nothing.',
  Subscription:
    'Watching, over a WebSocket at this same address (subprotocol graphql-transport-ws), or by Server-Sent Events ' +
    'here and at /graphql/stream (protocol graphql-sse), where `runEvents` resumes by Last-Event-ID.',
};

export function buildGraphqlSchema(): GraphQLSchema {
  const schema = buildSchemaSync({
    resolvers: [
      AlertResolver,
      AlertSinkResolver,
      CatalogItemResolver,
      ChannelResolver,
      GuardrailResolver,
      DeadLetterResolver,
      NodeResolver,
      OpsRunMutationResolver,
      OpsRunResolver,
      PipelineRunMutationResolver,
      PipelineRunResolver,
      PricingRuleResolver,
      RetentionResolver,
      RulePreviewResolver,
      RuleRunControlResolver,
      ReconciliationResolver,
      RuleRunMutationResolver,
      RuleRunResolver,
      RuleTargetResolver,
      RunResolver,
      ScheduleResolver,
      SourceResolver,
      StateMachineResolver,
      WebhookEndpointResolver,
      WorkerResolver,
    ],
    pubSub: NO_PUBSUB,
    validate: false,
  });
  for (const [name, description] of Object.entries(ROOT_DESCRIPTIONS)) {
    schema.getType(name)!.description = description;
  }
  return authoriseSchema(schema);
}
