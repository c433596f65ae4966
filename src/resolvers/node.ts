// node(id): anything by its id. An id says nothing of what it is the id of, so every noun is asked.

import { Arg, Ctx, ID, Query, Resolver } from 'type-graphql';
import { Node } from '../schema/node.js';
import { Needs } from './authorise.js';
import { findCatalogItemNode } from './catalog-item.js';
import { findChannelNode } from './channel.js';
import type { Context } from './context.js';
import { findOpsRunNode } from './ops-run.js';
import { findPipelineRunNode } from './pipeline-run.js';
import { findPricingRuleNode } from './pricing-rule.js';
import { findRuleRunNode } from './rule-run.js';
import { findRuleTargetNode } from './rule-target.js';
import { findSourceNode } from './source.js';

type FindNode = (context: Context, id: string) => Promise<Node | null>;

/** One line per noun. Each answers null, without asking the database, for an id that cannot be one of its own. */
const FINDERS: readonly FindNode[] = [
  findRuleRunNode,
  findPipelineRunNode,
  findOpsRunNode,
  findRuleTargetNode,
  findPricingRuleNode,
  findCatalogItemNode,
  findChannelNode,
  findSourceNode,
];

@Resolver()
export class NodeResolver {
  @Needs('READ')
  @Query(() => Node, { nullable: true, description: 'Anything by its id; null for an id of nothing.' })
  async node(
    @Arg('id', () => ID, {
      description: 'The id of a run, a target, a channel, a source, a rule or an item.',
    })
    id: string,
    @Ctx() context: Context,
  ): Promise<Node | null> {
    const found = await Promise.all(FINDERS.map((find) => find(context, id)));
    return found.find((node) => node !== null) ?? null;
  }
}
