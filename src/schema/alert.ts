// Alerts, the policies they come of, and the sinks that are told.

import { Field, Float, ID, InputType, Int, ObjectType } from 'type-graphql';
import type { AlertPolicyName, AlertSeverity } from '../domain/alert.js';
import type { Settings } from '../domain/settings.js';
import { defineEnum } from './enum.js';
import { countedConnectionOf } from './page.js';
import { Payload } from './payload.js';
import { DateTimeScalar, JsonScalar } from './scalar.js';

export const AlertPolicyEnum = defineEnum<AlertPolicyName>('AlertPolicyName', 'What people are told of.', {
  LOW_SUCCESS_RATE: 'Fewer targets succeed than should.',
  CRITICAL_SUCCESS_RATE: 'Far fewer targets succeed than should.',
  DLQ_BACKLOG: 'Dead letters pile up.',
  DLQ_CRITICAL: 'Very many dead letters have piled up.',
  THROTTLE_BURST: 'Channels ask us to slow down again and again.',
  CIRCUIT_OPEN: 'The circuit breaker of a channel has opened: nothing is sent to it for a while.',
  PIPELINE_FAILED: 'The last pipeline run of a source that ended failed.',
  OLD_TRANSACTION: 'A transaction of the database stays open; of the tenant that operates the server.',
});

export const AlertSeverityEnum = defineEnum<AlertSeverity>('AlertSeverity', 'How bad it is.', {
  WARNING: 'Somebody should look at it today.',
  CRITICAL: 'Somebody should look at it now.',
});

export type AlertStatus = 'FIRING' | 'RESOLVED';

export const AlertStatusEnum = defineEnum<AlertStatus>('AlertStatus', 'Whether it is still so.', {
  FIRING: 'It is so now.',
  RESOLVED: 'It is over.',
});

@ObjectType({
  simpleResolvers: true,
  description: 'Something that people should know: it fires once, and resolves when it is over.',
})
export class Alert {
  @Field(() => ID, { description: 'Its id.' })
  id!: string;

  @Field(() => AlertPolicyEnum, { description: 'The policy that it comes of.' })
  policy!: AlertPolicyName;

  @Field(() => AlertSeverityEnum, { description: 'How bad it is.' })
  severity!: AlertSeverity;

  @Field(() => AlertStatusEnum, { description: 'Whether it is still so.' })
  status!: AlertStatus;

  @Field(() => String, { description: 'What is wrong, for a person to read.' })
  message!: string;

  @Field(() => ID, {
    nullable: true,
    description:
      'What it is about: the channel, of CIRCUIT_OPEN; the source, of PIPELINE_FAILED, or the run where others drive it by SQL.',
  })
  subjectId!: string | null;

  @Field(() => Float, { description: 'What was measured when it fired.' })
  value!: number;

  @Field(() => Float, { description: 'The figure that it was compared with.' })
  threshold!: number;

  @Field(() => DateTimeScalar, { description: 'When it fired.' })
  firedAt!: Date;

  @Field(() => DateTimeScalar, { nullable: true, description: 'When it was over; null while it fires.' })
  resolvedAt!: Date | null;
}

@ObjectType({ simpleResolvers: true, description: 'Alerts, newest first.' })
export class AlertConnection extends countedConnectionOf('Alert', () => Alert) {}

@ObjectType({ simpleResolvers: true, description: 'A policy as it holds for this tenant.' })
export class AlertPolicy {
  @Field(() => AlertPolicyEnum, { description: 'Which policy.' })
  policy!: AlertPolicyName;

  @Field(() => AlertSeverityEnum, { description: 'How bad its alerts are.' })
  severity!: AlertSeverity;

  @Field(() => Boolean, { description: 'Whether its alerts fire.' })
  enabled!: boolean;

  @Field(() => Float, { description: 'Below it (success rates) or above it (all others) an alert fires.' })
  threshold!: number;

  @Field(() => Int, { nullable: true, description: 'How far back is looked; null for what is so now.' })
  windowSeconds!: number | null;

  @Field(() => Int, { description: 'After an alert has resolved, it does not fire again for so long.' })
  cooldownSeconds!: number;
}

@InputType({ description: 'A policy as it is to be: what is left out gets the server’s own figure.' })
export class SaveAlertPolicyInput {
  @Field(() => AlertPolicyEnum, { description: 'Which policy.' })
  policy!: AlertPolicyName;

  @Field(() => Boolean, { nullable: true, defaultValue: true, description: 'Whether its alerts fire.' })
  enabled?: boolean | null;

  @Field(() => Float, { nullable: true, description: 'Per cent for success rates, a number for all others.' })
  threshold?: number | null;

  @Field(() => Int, { nullable: true, description: 'How far back to look, from a minute to 30 days.' })
  windowSeconds?: number | null;

  @Field(() => Int, { nullable: true, description: 'The rest after an alert has resolved, up to a day.' })
  cooldownSeconds?: number | null;
}

@ObjectType({ implements: Payload, simpleResolvers: true, description: 'The policy as it holds now.' })
export class AlertPolicyPayload extends Payload {
  @Field(() => AlertPolicy, { nullable: true, description: 'Null when the save was refused.' })
  alertPolicy!: AlertPolicy | null;
}

@ObjectType({ simpleResolvers: true, description: 'Somebody who is told of alerts.' })
export class AlertSink {
  @Field(() => ID, { description: 'Its id.' })
  id!: string;

  @Field(() => String, { description: 'What people call it.' })
  name!: string;

  @Field(() => String, { description: 'WEBHOOK (Slack too), PAGERDUTY or EMAIL.' })
  kind!: string;

  @Field(() => JsonScalar, { description: 'Its settings, with a mask for each credential.' })
  config!: Settings;

  @Field(() => [AlertSeverityEnum], { description: 'The alerts that it is told of.' })
  severities!: readonly AlertSeverity[];

  @Field(() => Boolean, { description: 'Whether it is told anything.' })
  enabled!: boolean;

  @Field(() => Int, { description: 'How many notices wait for it.' })
  waiting!: number;

  @Field(() => DateTimeScalar, { nullable: true, description: 'When it last took a notice.' })
  lastDeliveredAt!: Date | null;

  @Field(() => String, {
    nullable: true,
    description: 'Why it, or some address of it, did not take the last one; null when it did.',
  })
  lastError!: string | null;
}

@InputType({ description: 'A sink as it is to be.' })
export class SaveAlertSinkInput {
  @Field(() => ID, { nullable: true, description: 'The sink to change; a new one when absent.' })
  id?: string | null;

  @Field(() => String, { description: 'What people call it; no other sink has the same name.' })
  name!: string;

  @Field(() => String, { description: 'WEBHOOK, PAGERDUTY or EMAIL. A sink keeps its kind.' })
  kind!: string;

  @Field(() => JsonScalar, {
    description:
      'WEBHOOK { url, secret }, PAGERDUTY { routingKey }, EMAIL { host, port, secure, user, password, from, to }. Where a credential comes as its mask, ********, the one that is stored stays.',
  })
  config!: unknown;

  @Field(() => [AlertSeverityEnum], {
    nullable: true,
    description: 'The alerts that it is told of; all of them when absent.',
  })
  severities?: readonly AlertSeverity[] | null;

  @Field(() => Boolean, { nullable: true, defaultValue: true, description: 'Whether it is told anything.' })
  enabled?: boolean | null;
}

@InputType({ description: 'Which sink.' })
export class AlertSinkInput {
  @Field(() => ID, { description: 'The sink.' })
  id!: string;
}

@ObjectType({ implements: Payload, simpleResolvers: true, description: 'The sink as it is now.' })
export class AlertSinkPayload extends Payload {
  @Field(() => AlertSink, { nullable: true, description: 'Null when it was refused, or is gone.' })
  alertSink!: AlertSink | null;
}
