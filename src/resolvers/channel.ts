// Channels and sources, as far as everybody may see them.

import { Ctx, Query, Resolver } from 'type-graphql';
import { Channel, ChannelHealth, Source } from '../schema/channel.js';
import { shape } from '../schema/shape.js';
import { listChannels, listSources, type ChannelRow, type SourceRow } from '../store/channel.js';
import { Needs } from './authorise.js';
import type { Context } from './context.js';

@Resolver()
export class ChannelResolver {
  @Needs('READ')
  @Query(() => [Channel], { description: 'Every sales channel, by name.' })
  async channels(@Ctx() { db, viewer }: Context): Promise<Channel[]> {
    return (await listChannels(db, viewer)).map(showChannel);
  }

  @Needs('READ')
  @Query(() => [Source], { description: 'Every supplier source, by name.' })
  async sources(@Ctx() { db, viewer }: Context): Promise<Source[]> {
    return (await listSources(db, viewer)).map(showSource);
  }
}

export async function findChannelNode({ loaders }: Context, id: string): Promise<Channel | null> {
  const row = await loaders.channel.load(id);
  return row && showChannel(row);
}

export async function findSourceNode({ loaders }: Context, id: string): Promise<Source | null> {
  const row = await loaders.source.load(id);
  return row && showSource(row);
}

export function showChannel(row: ChannelRow): Channel {
  const { id, name, kind, circuit, circuitOpenUntil, consecutive429 } = row;
  const availableTokens = availableTokensOf(row, new Date());
  return shape(Channel, {
    id,
    name,
    kind,
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

export function showSource({ id, name, kind, watermark, lastRunId }: SourceRow): Source {
  return shape(Source, { id, name, kind, watermark, lastRunId });
}
