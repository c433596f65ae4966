// Endpoints for webhooks, and the runs that they have still to be sent.

import { Field, Float, ID, InputType, Int, ObjectType } from 'type-graphql';
import type { RunKind } from '../domain/run.js';
import { DEFAULT_WEBHOOK_FIGURES as DEFAULTS } from '../domain/webhook-endpoint.js';
import { Payload } from './payload.js';
import { RunKindEnum } from './run.js';
import { DateTimeScalar } from './scalar.js';

@ObjectType({ simpleResolvers: true, description: "An address that is sent a tenant's run events, signed." })
export class WebhookEndpoint {
  @Field(() => ID, { description: 'Its id.' })
  id!: string;

  @Field(() => String, { description: 'What people call it.' })
  name!: string;

  @Field(() => String, {
    description: 'Whose address events are posted to; the rest of it, and its secret, are never shown.',
  })
  url!: string;

  @Field(() => [RunKindEnum], { description: 'The kinds of run that it is sent.' })
  kinds!: readonly RunKind[];

  @Field(() => [String], { description: 'The types of event that it is sent; * stands for any end.' })
  eventTypes!: readonly string[];

  @Field(() => String, { nullable: true, description: 'Only runs of this project; null for all.' })
  projectId!: string | null;

  @Field(() => Int, { description: 'Events in one request, at most.' })
  batchSize!: number;

  @Field(() => Boolean, { description: 'Whether it is sent anything. One that is off keeps its place.' })
  enabled!: boolean;

  @Field(() => DateTimeScalar, { nullable: true, description: 'When it was switched off.' })
  disabledAt!: Date | null;

  @Field(() => String, { nullable: true, description: 'Why it was switched off, and by whom.' })
  disabledReason!: string | null;

  @Field(() => Int, { description: 'It is switched off after so many hours without one success …' })
  deadAfterHours!: number;

  @Field(() => Int, { description: '… and at least so many failures in a row.' })
  deadAfterFailures!: number;

  @Field(() => Int, { description: 'Failures in a row; 0 when the last try succeeded.' })
  failures!: number;

  @Field(() => DateTimeScalar, { nullable: true, description: 'Since when every try has failed.' })
  failingSince!: Date | null;

  @Field(() => DateTimeScalar, {
    nullable: true,
    description: 'Nothing is sent before: it is being given time.',
  })
  nextAttemptAt!: Date | null;

  @Field(() => DateTimeScalar, { nullable: true, description: 'When it last took something, to the second.' })
  lastDeliveredAt!: Date | null;

  @Field(() => String, { nullable: true, description: 'Why the last try that failed did.' })
  lastError!: string | null;

  @Field(() => DateTimeScalar, { nullable: true, description: 'When that was.' })
  lastErrorAt!: Date | null;

  @Field(() => DateTimeScalar, { nullable: true, description: 'When the last ping was sent.' })
  pingedAt!: Date | null;

  @Field(() => String, { nullable: true, description: 'Why it was not taken; null when it was.' })
  pingError!: string | null;

  @Field(() => Int, { description: 'How many runs have events that it was not sent yet.' })
  waitingRuns!: number;

  @Field(() => Float, { description: 'How many events those are, wanted or not.' })
  waitingEvents!: number;

  @Field(() => DateTimeScalar, { nullable: true, description: 'Since when the longest of them waits.' })
  waitingSince!: Date | null;
}

@ObjectType({ simpleResolvers: true, description: 'A run that an endpoint has still to be sent some of.' })
export class WebhookWaitingRun {
  @Field(() => ID, { description: 'The run.' })
  runId!: string;

  @Field(() => RunKindEnum, { description: 'What kind of run it is.' })
  kind!: RunKind;

  @Field(() => Int, { description: 'The seq up to which it was sent.' })
  deliveredSeq!: number;

  @Field(() => Int, { description: 'The seq of its newest event.' })
  lastSeq!: number;

  @Field(() => Int, { description: 'Failures in a row.' })
  failures!: number;

  @Field(() => String, { nullable: true, description: 'Why the last try failed.' })
  error!: string | null;

  @Field(() => DateTimeScalar, { description: 'When it is tried next, at the earliest.' })
  nextAttemptAt!: Date;

  @Field(() => DateTimeScalar, { description: 'Since when it waits.' })
  waitingSince!: Date;
}

@InputType({ description: 'An endpoint as it is to be.' })
export class SaveWebhookEndpointInput {
  @Field(() => ID, { nullable: true, description: 'The endpoint to change; a new one when absent.' })
  id?: string | null;

  @Field(() => String, { description: 'What people call it; no other endpoint has the same name.' })
  name!: string;

  @Field(() => String, {
    description:
      'https, or http on this machine; redirects are not followed. As it is shown, it stays what it is.',
  })
  url!: string;

  @Field(() => String, {
    nullable: true,
    description:
      'What signatures are made with: 16 to 256 characters. Absent, the one that is stored stays; a former one signs too for a day.',
  })
  secret?: string | null;

  @Field(() => [RunKindEnum], { nullable: true, description: 'The kinds of run; all of them when absent.' })
  kinds?: readonly RunKind[] | null;

  @Field(() => [String], {
    nullable: true,
    description:
      'Types of event, e.g. rule_run.complete, or rule_run.* for all that begin so; all when absent.',
  })
  eventTypes?: readonly string[] | null;

  @Field(() => String, { nullable: true, description: 'Only runs of this project.' })
  projectId?: string | null;

  @Field(() => Int, {
    nullable: true,
    defaultValue: DEFAULTS.batchSize,
    description: 'Events in one request, at most: 1 to 500.',
  })
  batchSize?: number | null;

  @Field(() => Boolean, {
    nullable: true,
    description: 'On or off; as it is when absent, and on for a new one.',
  })
  enabled?: boolean | null;

  @Field(() => Int, {
    nullable: true,
    defaultValue: DEFAULTS.deadAfterHours,
    description: 'Switch it off after so many hours without one success (0 to 720) …',
  })
  deadAfterHours?: number | null;

  @Field(() => Int, {
    nullable: true,
    defaultValue: DEFAULTS.deadAfterFailures,
    description: '… and at least so many failures in a row (1 to 10,000).',
  })
  deadAfterFailures?: number | null;
}

@InputType({ description: 'Which endpoint.' })
export class WebhookEndpointInput {
  @Field(() => ID, { description: 'The endpoint.' })
  id!: string;
}

@InputType({ description: 'Which endpoint, and whether it is to be on.' })
export class SwitchWebhookEndpointInput {
  @Field(() => ID, { description: 'The endpoint.' })
  id!: string;

  @Field(() => Boolean, { description: 'On goes on from where it was, at once.' })
  enabled!: boolean;
}

@InputType({ description: 'What is to be sent again.' })
export class ReplayWebhookInput {
  @Field(() => ID, { description: 'The endpoint.' })
  endpointId!: string;

  @Field(() => ID, { description: 'The run.' })
  runId!: string;

  @Field(() => Int, {
    nullable: true,
    defaultValue: 0,
    description: 'The events after this seq are sent, and none before it: 0 for all of the run.',
  })
  afterSeq?: number | null;
}

@ObjectType({ implements: Payload, simpleResolvers: true, description: 'The endpoint as it is now.' })
export class WebhookEndpointPayload extends Payload {
  @Field(() => WebhookEndpoint, { nullable: true, description: 'Null when it was refused, or is gone.' })
  webhookEndpoint!: WebhookEndpoint | null;
}
