// The Node interface: anything that can be fetched again by its id.

import { Field, ID, InterfaceType } from 'type-graphql';

@InterfaceType({ description: 'Anything that `node(id)` finds.' })
export abstract class Node {
  @Field(() => ID, { description: 'Opaque, and the same in SQL as here.' })
  id!: string;
}
