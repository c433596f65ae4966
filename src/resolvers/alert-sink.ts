// Alert sinks: reading, saving and trying them. No credential is shown.

import { Arg, Ctx, Mutation, Query, Resolver } from 'type-graphql';
import { ALERT_SEVERITIES, type AlertSeverity } from '../domain/alert.js';
import { AlertSink, AlertSinkInput, AlertSinkPayload, SaveAlertSinkInput } from '../schema/alert.js';
import { shape } from '../schema/shape.js';
import {
  deleteAlertSink,
  listAlertSinks,
  saveAlertSink,
  testAlertSink,
  type AlertSinkRow,
} from '../store/alert-sink.js';
import { Needs } from './authorise.js';
import type { Context } from './context.js';
import { mutate } from './mutate.js';

@Resolver()
export class AlertSinkResolver {
  @Needs('READ')
  @Query(() => [AlertSink], { description: 'Everybody who is told of alerts, by name.' })
  async alertSinks(@Ctx() { db, viewer }: Context): Promise<AlertSink[]> {
    return (await listAlertSinks(db, viewer)).map(showSink);
  }

  @Needs('ADMINISTER')
  @Mutation(() => AlertSinkPayload, {
    description: 'Saves a sink: a new one, or changes to one. Its credentials are encrypted.',
  })
  saveAlertSink(
    @Arg('input', () => SaveAlertSinkInput, { description: 'The sink as it is to be.' })
    { id, name, kind, config, severities, enabled }: SaveAlertSinkInput,
    @Ctx() { db, viewer, secrets, alertSinkKinds }: Context,
  ): Promise<AlertSinkPayload> {
    return mutate<AlertSinkPayload>({ alertSink: null }, async () => {
      const input = {
        id: id ?? null,
        name,
        kind,
        config,
        severities: severities ?? ALERT_SEVERITIES,
        enabled: enabled ?? true,
      };
      return { alertSink: showSink(await saveAlertSink(db, secrets, viewer, alertSinkKinds, input)) };
    });
  }

  @Needs('ADMINISTER')
  @Mutation(() => AlertSinkPayload, {
    description:
      'Tells the sink that this is a test; look at its lastDeliveredAt and lastError a moment later.',
  })
  testAlertSink(
    @Arg('input', () => AlertSinkInput, { description: 'Which sink.' }) { id }: AlertSinkInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<AlertSinkPayload> {
    return mutate<AlertSinkPayload>({ alertSink: null }, async () => ({
      alertSink: showSink(await testAlertSink(db, viewer, id)),
    }));
  }

  @Needs('ADMINISTER')
  @Mutation(() => AlertSinkPayload, { description: 'Removes a sink, with whatever it was still to be told.' })
  deleteAlertSink(
    @Arg('input', () => AlertSinkInput, { description: 'Which sink.' }) { id }: AlertSinkInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<AlertSinkPayload> {
    return mutate<AlertSinkPayload>({ alertSink: null }, async () => {
      await deleteAlertSink(db, viewer, id);
      return { alertSink: null };
    });
  }
}

function showSink({
  tenantId: _tenant,
  createdAt: _created,
  updatedAt: _updated,
  ...row
}: AlertSinkRow): AlertSink {
  return shape(AlertSink, { ...row, severities: row.severities as AlertSeverity[] });
}
