// The kinds of channel there are. Owns the shape of a channel's config: the connector's own settings, and
// beside them one reserved key, `policy`. Used by the runner to open a channel, and before a config is saved.

import type { z } from 'zod';
import { isObject } from '../domain/json.js';
import type { Channel } from './channel.js';
import { HTTP_SETTINGS } from './http/config.js';
import { HttpChannel } from './http/http-channel.js';
import { findPlainSecrets } from './http/plain-secrets.js';
import { mergePolicy, POLICY_SETTINGS, type ChannelPolicy } from './policy.js';
import { findFaults, unsound, type SettingFault } from './settings.js';
import { SHOPIFY_SETTINGS } from './shopify/config.js';
import { ShopifyChannel } from './shopify/shopify-channel.js';

/** What a config need not say. */
export interface ChannelDefaults extends Pick<ChannelPolicy, 'retry' | 'circuit'> {
  readonly callTimeoutMs: number;
}

export interface OpenedChannel {
  readonly channel: Channel;
  readonly policy: ChannelPolicy;
}

interface Kind {
  /** The settings that hold credentials, whole. */
  readonly secrets: readonly string[];
  /** Reads the settings, and opens a channel when they are sound. */
  open(settings: unknown): { readonly channel: Channel } | { readonly error: z.ZodError };
  /** What sound settings may not hold. */
  findMisplaced(settings: unknown): Iterable<SettingFault>;
}

const KINDS: Readonly<Record<string, Kind>> = {
  http: kind(HTTP_SETTINGS, ['credentials'], (settings) => new HttpChannel(settings), findPlainSecrets),
  shopify: kind(SHOPIFY_SETTINGS, ['accessToken'], (settings) => new ShopifyChannel(settings)),
};

export const CHANNEL_KINDS: readonly string[] = Object.keys(KINDS);

/** Throws INVALID_INPUT that names every fault of the kind, the settings and the policy. */
export function openChannel(kindName: string, config: unknown, defaults: ChannelDefaults): OpenedChannel {
  const found = findKind(kindName);
  if (!found)
    throw unsound('channel', [{ field: ['kind'], message: `is one of ${CHANNEL_KINDS.join(', ')}` }]);
  const { policy = {}, ...given } = asObject(config);
  const opened = found.open({ callTimeoutMs: defaults.callTimeoutMs, ...given });
  const figures = POLICY_SETTINGS.safeParse(policy);
  if ('channel' in opened && figures.success) {
    return { channel: opened.channel, policy: mergePolicy(figures.data, defaults) };
  }
  const settingFaults = 'error' in opened ? findFaults(opened.error) : [];
  throw unsound(`${kindName} channel`, [...settingFaults, ...findFaults(figures.error, 'policy')]);
}

/**
 * Throws INVALID_INPUT when a config that opens holds what none that is saved may; one that is stored so still
 * opens, or a stricter rule would stop the runs of those who saved before it.
 */
export function refuseMisplaced(kindName: string, config: unknown): void {
  const faults = [...(findKind(kindName)?.findMisplaced(config) ?? [])];
  if (faults.length > 0) throw unsound(`${kindName} channel`, faults);
}

/** Names of the settings that hold credentials; null when there is no such kind. */
export function secretSettings(kindName: string): readonly string[] | null {
  return findKind(kindName)?.secrets ?? null;
}

function findKind(name: string): Kind | undefined {
  return Object.hasOwn(KINDS, name) ? KINDS[name] : undefined;
}

function kind<Settings, Input>(
  schema: z.ZodType<Settings, Input>,
  secrets: readonly string[],
  connect: (settings: Settings) => Channel,
  findMisplaced: (settings: Input) => Iterable<SettingFault> = () => [],
): Kind {
  const open: Kind['open'] = (json) => {
    const parsed = schema.safeParse(json);
    return parsed.success ? { channel: connect(parsed.data) } : { error: parsed.error };
  };
  return { secrets, open, findMisplaced: (settings) => findMisplaced(settings as Input) };
}

function asObject(config: unknown): Readonly<Record<string, unknown>> {
  if (isObject(config)) return { ...config };
  throw unsound('channel', [{ field: [], message: 'must be an object' }]);
}
