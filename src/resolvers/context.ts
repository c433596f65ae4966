// What a resolver is given beside its arguments. A context serves one operation, or one event of a
// subscription.

import type { ChannelKinds } from '../domain/channel.js';
import type { SettingKinds } from '../domain/settings.js';
import type { Viewer } from '../domain/viewer.js';
import type { AlertFeed } from '../events/alert-feed.js';
import type { RunFeed } from '../events/feed.js';
import type { Database } from '../store/db.js';
import type { SecretBox } from '../store/secret-box.js';
import { Loaders } from './loaders.js';

/** What all operations share. */
export interface Services {
  readonly db: Database;
  readonly feed: RunFeed;
  /** Seals and opens credentials. */
  readonly secrets: SecretBox;
  /** What the connectors know about the kinds of channel. */
  readonly channelKinds: ChannelKinds;
  /** After how long without progress a partition counts as stuck. */
  readonly stuckMs: number;
  readonly alertFeed: AlertFeed;
  /** What the connectors know about the kinds of alert sink. */
  readonly alertSinkKinds: SettingKinds;
  /** And about the kinds of source. */
  readonly sourceKinds: SettingKinds;
  /** And about endpoints for webhooks. */
  readonly webhookKinds: SettingKinds;
  readonly operationLog: OperationLog | null;
}

/** Where single operations are told of, when anybody wants to know. */
export interface OperationLog {
  debug(details: object, message: string): void;
}

export interface Context extends Services {
  /** Of the request; null for an event of a subscription. */
  readonly correlationId: string | null;
  readonly viewer: Viewer;
  readonly loaders: Loaders;
}

export function createContext(parts: Services & Pick<Context, 'viewer' | 'correlationId'>): Context {
  return { ...parts, loaders: new Loaders(parts.db, parts.viewer, parts.stuckMs) };
}
