// Retention: reading and setting the policies. What they delete is a job's to delete.

import { Arg, Ctx, Mutation, Query, Resolver } from 'type-graphql';
import { RetentionPolicy, RetentionPolicyPayload, SaveRetentionPolicyInput } from '../schema/retention.js';
import { shape } from '../schema/shape.js';
import { listRetentionPolicies, saveRetentionPolicy } from '../store/retention-policy.js';
import { Needs } from './authorise.js';
import type { Context } from './context.js';
import { mutate } from './mutate.js';

@Resolver()
export class RetentionResolver {
  @Needs('READ')
  @Query(() => [RetentionPolicy], {
    description: 'One policy for each kind of run, as it holds for this tenant.',
  })
  async retentionPolicies(@Ctx() { db, viewer }: Context): Promise<RetentionPolicy[]> {
    return (await listRetentionPolicies(db, viewer)).map((policy) => shape(RetentionPolicy, policy));
  }

  @Needs('ADMINISTER')
  @Mutation(() => RetentionPolicyPayload, {
    description:
      'Sets how long what runs of a kind leave behind is kept. It holds for runs that have ended already, too: what is deleted cannot be brought back.',
  })
  saveRetentionPolicy(
    @Arg('input', () => SaveRetentionPolicyInput, { description: 'The policy as it is to be.' })
    { kind, keepDays = null, rollbackDays = null }: SaveRetentionPolicyInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<RetentionPolicyPayload> {
    return mutate<RetentionPolicyPayload>({ retentionPolicy: null }, async () => {
      const saved = await saveRetentionPolicy(db, viewer, { kind, keepDays, rollbackDays });
      return { retentionPolicy: shape(RetentionPolicy, saved) };
    });
  }
}
