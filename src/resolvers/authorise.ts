// Who may call which field. Every field of Query, Mutation and Subscription declares what it needs beside
// its resolver, by @Needs; a field that does not stops the schema from being built, so that none is open by
// oversight.

import {
  defaultFieldResolver,
  type GraphQLField,
  type GraphQLFieldResolver,
  type GraphQLSchema,
} from 'graphql';
import { Extensions } from 'type-graphql';
import { AppError } from '../errors.js';
import { isAllowed, type Access } from '../domain/viewer.js';
import type { Context } from './context.js';
import { tellOf } from './operation.js';

/** Declares the access that a root field needs. */
export function Needs(access: Access): MethodDecorator {
  return Extensions({ access }) as MethodDecorator;
}

export type Resolve = GraphQLFieldResolver<unknown, Context>;

/** Puts the check before every root field of the schema. */
export function authoriseSchema(schema: GraphQLSchema): GraphQLSchema {
  const roots = [schema.getQueryType(), schema.getMutationType(), schema.getSubscriptionType()];
  for (const root of roots) {
    for (const field of Object.values(root?.getFields() ?? {})) authoriseField(root!.name, field);
  }
  return schema;
}

function authoriseField(root: string, field: GraphQLField<unknown, Context>): void {
  const name = `${root}.${field.name}`;
  const access = field.extensions['access'] as Access | undefined;
  if (access === undefined) throw new Error(`${name} does not declare the access it needs: add @Needs`);
  const check =
    (resolve: Resolve): Resolve =>
    (source, args, context, info) => {
      assertAllowed(context, access, name);
      return resolve(source, args, context, info);
    };
  // Of a subscription, both: the key may lose its role between two events.
  field.resolve = tellOf(root, field, check(field.resolve ?? defaultFieldResolver));
  if (field.subscribe) field.subscribe = check(field.subscribe);
}

function assertAllowed({ viewer }: Context, access: Access, name: string): void {
  if (isAllowed(viewer.role, access)) return;
  throw new AppError('FORBIDDEN', `A key with the role ${viewer.role} may not use ${name}.`);
}
