// The schema, put together from the resolvers: one line each. Called by app, by the tests and by
// `npm run generate`, which writes it to schema.graphql.

import 'reflect-metadata';
import type { GraphQLSchema } from 'graphql';
import { buildSchemaSync, type PubSub } from 'type-graphql';
import { authoriseSchema } from './authorise.js';
import { CatalogItemResolver } from './catalog-item.js';
import { ChannelResolver } from './channel.js';
import { NodeResolver } from './node.js';
import { PricingRuleResolver } from './pricing-rule.js';
import { RuleRunResolver } from './rule-run.js';
import { RunResolver } from './run.js';
import { StateMachineResolver } from './state-machine.js';

/** type-graphql asks for one; every subscription here brings its own source. */
const NO_PUBSUB: PubSub = {
  publish: () => {
    throw new Error('nothing is published in the process: the ledger is the source of every event');
  },
  subscribe: () => {
    throw new Error('a subscription must name its source by `subscribe`');
  },
};

export function buildGraphqlSchema(): GraphQLSchema {
  return authoriseSchema(
    buildSchemaSync({
      resolvers: [
        CatalogItemResolver,
        ChannelResolver,
        NodeResolver,
        PricingRuleResolver,
        RuleRunResolver,
        RunResolver,
        StateMachineResolver,
      ],
      pubSub: NO_PUBSUB,
      validate: false,
    }),
  );
}
