// The kinds of alert sink, one line each: the settings that it takes, which of them are secret, and how it is
// opened.

import type { z } from 'zod';
import type { SettingKinds } from '../../domain/settings.js';
import { AppError } from '../../errors.js';
import { parseSettings } from '../settings.js';
import { EMAIL_SETTINGS, EmailSink } from './email.js';
import { PAGERDUTY_SETTINGS, PagerDutySink } from './pagerduty.js';
import type { AlertSink } from './sink.js';
import { WEBHOOK_SETTINGS, WebhookSink } from './webhook.js';

interface SinkKind {
  readonly secrets: readonly string[];
  readonly open: (config: unknown) => AlertSink;
}

function sinkKind<Settings>(
  kind: string,
  schema: z.ZodType<Settings>,
  secrets: readonly string[],
  make: (settings: Settings) => AlertSink,
): SinkKind {
  return { secrets, open: (config) => make(parseSettings(`${kind} sink`, schema, config)) };
}

const KINDS: Readonly<Record<string, SinkKind>> = {
  // Whoever has a chat's webhook address can write to the chat.
  WEBHOOK: sinkKind('WEBHOOK', WEBHOOK_SETTINGS, ['url', 'secret'], (settings) => new WebhookSink(settings)),
  PAGERDUTY: sinkKind(
    'PAGERDUTY',
    PAGERDUTY_SETTINGS,
    ['routingKey'],
    (settings) => new PagerDutySink(settings),
  ),
  EMAIL: sinkKind('EMAIL', EMAIL_SETTINGS, ['password'], (settings) => new EmailSink(settings)),
};

/** Throws INVALID_INPUT when the settings cannot be used. */
export function openAlertSink(kind: string, config: unknown): AlertSink {
  const known = KINDS[kind];
  if (!known) throw new AppError('INVALID_INPUT', `There is no alert sink of the kind ${kind}.`);
  return known.open(config);
}

/** As the API may ask about them, without knowing any. */
export const ALERT_SINK_KINDS: SettingKinds = {
  secretNames: (kind) => KINDS[kind]?.secrets ?? null,
  check: (kind, config) => void openAlertSink(kind, config),
};
