// Supplier sources: reading and saving them. No credential is shown.

import { Arg, Ctx, FieldResolver, Mutation, Query, Resolver, Root } from 'type-graphql';
import { maskSettings, type Settings } from '../domain/settings.js';
import { JsonScalar } from '../schema/scalar.js';
import { shape } from '../schema/shape.js';
import { SaveSourceInput, Source, SourcePayload } from '../schema/source.js';
import { listSources, saveSource, type SourceRow } from '../store/source.js';
import { Needs } from './authorise.js';
import type { Context } from './context.js';
import { mutate } from './mutate.js';

@Resolver(() => Source)
export class SourceResolver {
  @Needs('READ')
  @Query(() => [Source], { description: 'Every supplier source, by name.' })
  async sources(@Ctx() { db, viewer }: Context): Promise<Source[]> {
    return (await listSources(db, viewer)).map(showSource);
  }

  @FieldResolver(() => JsonScalar, { description: 'Its settings, with a mask for each credential.' })
  config(@Root() source: Source, @Ctx() { sourceKinds }: Context): Settings {
    return maskSettings(source.storedConfig, sourceKinds.secretNames(source.kind));
  }

  @Needs('ADMINISTER')
  @Mutation(() => SourcePayload, {
    description: 'Saves a source: a new one, or changes to one. Its credentials are encrypted.',
  })
  saveSource(
    @Arg('input', () => SaveSourceInput, { description: 'The source as it is to be.' })
    { id, name, kind, config }: SaveSourceInput,
    @Ctx() { db, viewer, secrets, sourceKinds }: Context,
  ): Promise<SourcePayload> {
    return mutate<SourcePayload>({ source: null }, async () => {
      const input = { id: id ?? null, name, kind, config };
      return { source: showSource(await saveSource(db, secrets, viewer, sourceKinds, input)) };
    });
  }
}

export async function findSourceNode({ loaders }: Context, id: string): Promise<Source | null> {
  const row = await loaders.source.load(id);
  return row && showSource(row);
}

export function showSource({ id, name, kind, config, watermark, lastRunId }: SourceRow): Source {
  return shape(Source, { id, name, kind, storedConfig: config as Settings, watermark, lastRunId });
}
