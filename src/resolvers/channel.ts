// Channels: reading, saving and testing them. No credential is shown.

import { Arg, Ctx, FieldResolver, Mutation, Query, Resolver, Root } from 'type-graphql';
import { maskSettings, type Settings } from '../domain/settings.js';
import {
  Channel,
  ChannelHealth,
  ChannelPayload,
  ChannelTest,
  ChannelTestPayload,
  SaveChannelInput,
  TestChannelInput,
} from '../schema/channel.js';
import { JsonScalar } from '../schema/scalar.js';
import { shape } from '../schema/shape.js';
import { listChannels, type ChannelRow } from '../store/channel.js';
import { requireChannelConfig, saveChannel } from '../store/channel-config.js';
import { Needs } from './authorise.js';
import type { Context } from './context.js';
import { mutate } from './mutate.js';

@Resolver(() => Channel)
export class ChannelResolver {
  @Needs('READ')
  @Query(() => [Channel], { description: 'Every sales channel, by name.' })
  async channels(@Ctx() { db, viewer }: Context): Promise<Channel[]> {
    return (await listChannels(db, viewer)).map(showChannel);
  }

  @FieldResolver(() => JsonScalar, { description: 'Its settings, with a mask for each credential.' })
  config(@Root() channel: Channel, @Ctx() { channelKinds }: Context): Settings {
    return maskSettings(channel.storedConfig, channelKinds.secretNames(channel.kind));
  }

  @Needs('ADMINISTER')
  @Mutation(() => ChannelPayload, {
    description: 'Saves a channel: a new one, or changes to one. Its credentials are encrypted.',
  })
  saveChannel(
    @Arg('input', () => SaveChannelInput, { description: 'The channel as it is to be.' })
    { id, name, kind, config }: SaveChannelInput,
    @Ctx() { db, viewer, secrets, channelKinds }: Context,
  ): Promise<ChannelPayload> {
    return mutate<ChannelPayload>({ channel: null }, async () => {
      const input = { id: id ?? null, name, kind, config };
      return { channel: showChannel(await saveChannel(db, secrets, viewer, channelKinds, input)) };
    });
  }

  @Needs('ADMINISTER')
  @Mutation(() => ChannelTestPayload, {
    description: 'Calls the channel once, with the settings that are saved, and changes nothing there.',
  })
  testChannel(
    @Arg('input', () => TestChannelInput, { description: 'Which channel to call.' })
    { channelId }: TestChannelInput,
    @Ctx() { db, viewer, secrets, channelKinds }: Context,
  ): Promise<ChannelTestPayload> {
    return mutate<ChannelTestPayload>({ test: null }, async () => {
      const stored = await requireChannelConfig(db, secrets, viewer, channelId);
      return { test: shape(ChannelTest, await channelKinds.test(stored)) };
    });
  }
}

export async function findChannelNode({ loaders }: Context, id: string): Promise<Channel | null> {
  const row = await loaders.channel.load(id);
  return row && showChannel(row);
}

export function showChannel(row: ChannelRow): Channel {
  const { id, name, kind, updatedAt, circuit, circuitOpenUntil, consecutive429 } = row;
  const availableTokens = availableTokensOf(row, new Date());
  return shape(Channel, {
    id,
    name,
    kind,
    updatedAt,
    storedConfig: row.config as Settings,
    health: shape(ChannelHealth, { circuit, openUntil: circuitOpenUntil, consecutive429, availableTokens }),
  });
}

/** What the bucket has come to since it was last written down. */
function availableTokensOf(row: ChannelRow, now: Date): number | null {
  const { bucketTokens, bucketCapacity, bucketRestorePerS, bucketAt } = row;
  if (bucketTokens === null || bucketCapacity === null || bucketRestorePerS === null || bucketAt === null) {
    return bucketTokens;
  }
  const seconds = Math.max(now.getTime() - bucketAt.getTime(), 0) / 1000;
  return Math.min(bucketCapacity, bucketTokens + seconds * bucketRestorePerS);
}
