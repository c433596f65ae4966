// Supplier sources. How to reach them is shown with a mask for each credential.

import { Field, ID, InputType, ObjectType } from 'type-graphql';
import type { Settings } from '../domain/settings.js';
import { Node } from './node.js';
import { Payload } from './payload.js';
import { DateTimeScalar, JsonScalar } from './scalar.js';

@ObjectType({
  implements: Node,
  simpleResolvers: true,
  description: "A supplier's feed that fills the catalog.",
})
export class Source extends Node {
  /** For the resolver of `config`. */
  storedConfig!: Settings;

  @Field(() => String, { description: 'What people call it.' })
  name!: string;

  @Field(() => String, { description: 'The technology behind it, e.g. nivoda.' })
  kind!: string;

  @Field(() => DateTimeScalar, {
    nullable: true,
    description: 'Everything up to here is in the catalog; it moves only when a pipeline run completes.',
  })
  watermark!: Date | null;

  @Field(() => ID, { nullable: true, description: 'The pipeline run that moved the watermark last.' })
  lastRunId!: string | null;
}

@InputType({ description: 'A source as it is to be.' })
export class SaveSourceInput {
  @Field(() => ID, { nullable: true, description: 'The source to change; a new one when absent.' })
  id?: string | null;

  @Field(() => String, { description: 'What people call it; no other source has the same name.' })
  name!: string;

  @Field(() => String, {
    description: 'The technology: nivoda, http-json, csv or ndjson. A source keeps its kind.',
  })
  kind!: string;

  @Field(() => JsonScalar, {
    description:
      'Its settings, whole, credentials among them, and under `policy` the length of a page, the number of partitions and the retries. Where a credential comes as its mask, ********, the one that is stored stays.',
  })
  config!: unknown;
}

@ObjectType({ implements: Payload, simpleResolvers: true, description: 'The source as it was saved.' })
export class SourcePayload extends Payload {
  @Field(() => Source, { nullable: true, description: 'Null when the save was refused.' })
  source!: Source | null;
}
