// Alerts: reading and watching them, and setting the policies that they come of.

import { Arg, Ctx, Mutation, Query, Resolver, Root, Subscription } from 'type-graphql';
import { POLICY_RULES, type AlertPolicyName } from '../domain/alert.js';
import {
  Alert,
  AlertConnection,
  AlertPolicy,
  AlertPolicyEnum,
  AlertPolicyPayload,
  AlertStatusEnum,
  SaveAlertPolicyInput,
  type AlertStatus,
} from '../schema/alert.js';
import { After, First, type CountedConnection } from '../schema/page.js';
import { shape } from '../schema/shape.js';
import { alertCursor, countAlerts, listAlerts, type AlertRow } from '../store/alert.js';
import { listPolicies, savePolicy, type TenantPolicy } from '../store/alert-policy.js';
import { checkFirst } from '../store/page.js';
import { Needs } from './authorise.js';
import { connect } from './connect.js';
import type { Context } from './context.js';
import { mutate } from './mutate.js';

const MAX_PAGE = 100;

@Resolver()
export class AlertResolver {
  @Needs('READ')
  @Query(() => AlertConnection, { description: 'Every alert of the last 90 days, newest first.' })
  async alerts(
    @First(20, MAX_PAGE) first: number | null,
    @After() after: string | null,
    @Arg('status', () => AlertStatusEnum, { nullable: true, description: 'Only those that fire, or do not.' })
    status: AlertStatus | null,
    @Arg('policy', () => [AlertPolicyEnum], { nullable: true, description: 'Only those of these policies.' })
    policy: AlertPolicyName[] | null,
    @Ctx() { db, viewer }: Context,
  ): Promise<CountedConnection<Alert>> {
    const filter = { isFiring: status ? status === 'FIRING' : null, policy: policy ?? null };
    const request = { first: first ?? 20, after: after ?? null, filter };
    checkFirst(request.first, MAX_PAGE);
    const page = await listAlerts(db, viewer, request);
    return { ...connect(page, showAlert, alertCursor), totalCount: () => countAlerts(db, viewer, filter) };
  }

  @Needs('READ')
  @Query(() => [AlertPolicy], { description: 'Every policy, as it holds for this tenant.' })
  async alertPolicies(@Ctx() { db, viewer }: Context): Promise<AlertPolicy[]> {
    return (await listPolicies(db, viewer)).map(showPolicy);
  }

  @Needs('ADMINISTER')
  @Mutation(() => AlertPolicyPayload, { description: 'Sets a policy for this tenant.' })
  saveAlertPolicy(
    @Arg('input', () => SaveAlertPolicyInput, { description: 'The policy as it is to be.' })
    input: SaveAlertPolicyInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<AlertPolicyPayload> {
    return mutate<AlertPolicyPayload>({ alertPolicy: null }, async () => {
      const saved = await savePolicy(db, viewer, {
        policy: input.policy,
        enabled: input.enabled ?? true,
        threshold: input.threshold ?? null,
        windowSeconds: input.windowSeconds ?? null,
        cooldownSeconds: input.cooldownSeconds ?? null,
      });
      return { alertPolicy: showPolicy(saved) };
    });
  }

  @Needs('READ')
  @Subscription(() => Alert, {
    name: 'alerts',
    subscribe: ({ context }: { context: Context }) => context.alertFeed.watch(context.viewer),
    description: 'Every alert that fires now, then each as it fires and as it resolves.',
  })
  alertChanged(@Root() alert: AlertRow): Alert {
    return showAlert(alert);
  }
}

function showAlert({ subject, tenantId: _, ...row }: AlertRow): Alert {
  return shape(Alert, {
    ...row,
    subjectId: subject === '' ? null : subject,
    status: row.resolvedAt === null ? 'FIRING' : 'RESOLVED',
  });
}

function showPolicy(policy: TenantPolicy): AlertPolicy {
  return shape(AlertPolicy, { ...policy, severity: POLICY_RULES[policy.policy].severity });
}
