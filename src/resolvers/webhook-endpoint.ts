// Endpoints for webhooks: reading, saving, trying and switching them, and sending something again. No secret is
// shown.

import { Arg, Ctx, ID, Int, Mutation, Query, Resolver } from 'type-graphql';
import { RUN_KINDS } from '../domain/run.js';
import { DEFAULT_WEBHOOK_FIGURES as DEFAULTS } from '../domain/webhook-endpoint.js';
import { shape } from '../schema/shape.js';
import {
  ReplayWebhookInput,
  SaveWebhookEndpointInput,
  SwitchWebhookEndpointInput,
  WebhookEndpoint,
  WebhookEndpointInput,
  WebhookEndpointPayload,
  WebhookWaitingRun,
} from '../schema/webhook-endpoint.js';
import {
  deleteWebhookEndpoint,
  listWebhookEndpoints,
  saveWebhookEndpoint,
  switchWebhookEndpoint,
  testWebhookEndpoint,
  type WebhookEndpointRow,
} from '../store/webhook-endpoint.js';
import { listWaitingRuns, replayWebhook } from '../store/webhook-replay.js';
import { Needs } from './authorise.js';
import type { Context } from './context.js';
import { mutate } from './mutate.js';

@Resolver()
export class WebhookEndpointResolver {
  @Needs('READ')
  @Query(() => [WebhookEndpoint], { description: 'Everybody who is sent run events, by name.' })
  async webhookEndpoints(@Ctx() { db, viewer }: Context): Promise<WebhookEndpoint[]> {
    return (await listWebhookEndpoints(db, viewer)).map(showEndpoint);
  }

  @Needs('READ')
  @Query(() => [WebhookWaitingRun], {
    description: 'The runs that an endpoint has still to be sent some of, longest wait first.',
  })
  async webhookWaitingRuns(
    @Arg('endpointId', () => ID, { description: 'The endpoint.' }) endpointId: string,
    @Arg('first', () => Int, { defaultValue: 20, description: 'How many, 1 to 100.' }) first: number,
    @Ctx() { db, viewer }: Context,
  ): Promise<WebhookWaitingRun[]> {
    return (await listWaitingRuns(db, viewer, endpointId, first)).map((row) => shape(WebhookWaitingRun, row));
  }

  @Needs('ADMINISTER')
  @Mutation(() => WebhookEndpointPayload, {
    description:
      'Saves an endpoint: a new one, which is sent what happens from now on, or changes to one. Its secret is encrypted.',
  })
  saveWebhookEndpoint(
    @Arg('input', () => SaveWebhookEndpointInput, { description: 'The endpoint as it is to be.' })
    input: SaveWebhookEndpointInput,
    @Ctx() { db, viewer, secrets, webhookKinds }: Context,
  ): Promise<WebhookEndpointPayload> {
    return answer(() => saveWebhookEndpoint(db, secrets, viewer, webhookKinds, completed(input)));
  }

  @Needs('ADMINISTER')
  @Mutation(() => WebhookEndpointPayload, {
    description: 'Switches an endpoint on or off. It loses nothing: on, it goes on from where it was.',
  })
  switchWebhookEndpoint(
    @Arg('input', () => SwitchWebhookEndpointInput, { description: 'Which endpoint, and how.' })
    { id, enabled }: SwitchWebhookEndpointInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<WebhookEndpointPayload> {
    return answer(() => switchWebhookEndpoint(db, viewer, id, enabled));
  }

  @Needs('ADMINISTER')
  @Mutation(() => WebhookEndpointPayload, {
    description: 'Sends the endpoint a ping; look at its pingedAt and pingError a moment later.',
  })
  testWebhookEndpoint(
    @Arg('input', () => WebhookEndpointInput, { description: 'Which endpoint.' })
    { id }: WebhookEndpointInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<WebhookEndpointPayload> {
    return answer(() => testWebhookEndpoint(db, viewer, id));
  }

  @Needs('ADMINISTER')
  @Mutation(() => WebhookEndpointPayload, {
    description: "Sends the endpoint a run's events after a seq, again or for the first time.",
  })
  replayWebhook(
    @Arg('input', () => ReplayWebhookInput, { description: 'What is to be sent.' })
    { endpointId, runId, afterSeq }: ReplayWebhookInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<WebhookEndpointPayload> {
    return answer(() => replayWebhook(db, viewer, { endpointId, runId, afterSeq: afterSeq ?? 0 }));
  }

  @Needs('ADMINISTER')
  @Mutation(() => WebhookEndpointPayload, {
    description: 'Removes an endpoint, with its place in every run.',
  })
  deleteWebhookEndpoint(
    @Arg('input', () => WebhookEndpointInput, { description: 'Which endpoint.' })
    { id }: WebhookEndpointInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<WebhookEndpointPayload> {
    return answer(async () => {
      await deleteWebhookEndpoint(db, viewer, id);
      return null;
    });
  }
}

function answer(verb: () => Promise<WebhookEndpointRow | null>): Promise<WebhookEndpointPayload> {
  return mutate<WebhookEndpointPayload>({ webhookEndpoint: null }, async () => {
    const row = await verb();
    return { webhookEndpoint: row && showEndpoint(row) };
  });
}

function completed(input: SaveWebhookEndpointInput) {
  return {
    id: input.id ?? null,
    name: input.name,
    url: input.url,
    secret: input.secret ?? null,
    enabled: input.enabled ?? null,
    kinds: input.kinds ?? RUN_KINDS,
    eventTypes: input.eventTypes ?? DEFAULTS.eventTypes,
    projectId: input.projectId ?? null,
    batchSize: input.batchSize ?? DEFAULTS.batchSize,
    deadAfterHours: input.deadAfterHours ?? DEFAULTS.deadAfterHours,
    deadAfterFailures: input.deadAfterFailures ?? DEFAULTS.deadAfterFailures,
  };
}

function showEndpoint({
  tenantId: _tenant,
  createdAt: _created,
  updatedAt: _updated,
  ...row
}: WebhookEndpointRow): WebhookEndpoint {
  return shape(WebhookEndpoint, row);
}
