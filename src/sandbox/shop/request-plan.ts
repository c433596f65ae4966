// What a request is about to do, known before it does it: its root fields with their arguments. From it
// come the cost, the size limit and the faults, which Shopify too decides ahead of execution.
//
// Cost in points: a write is 10, and 1 more for every 10 variants or part of it; a read is 1 for each
// node asked for; anything else is 1.

import {
  getArgumentValues,
  getVariableValues,
  GraphQLError,
  Kind,
  parse,
  TypeInfo,
  validate,
  visit,
  visitWithTypeInfo,
  type DocumentNode,
  type OperationDefinitionNode,
} from 'graphql';
import { SHOP_SCHEMA } from './schema.js';

const MAX_LIST = 250;

export interface VariantInput {
  readonly id?: string | null;
  readonly price?: unknown;
}

export interface RequestPlan {
  readonly document: DocumentNode;
  readonly cost: number;
  /** The variants of every write in the request. */
  readonly written: readonly VariantInput[];
}

export interface ShopRequest {
  readonly query: string;
  readonly variables?: Readonly<Record<string, unknown>> | null | undefined;
}

interface RootCall {
  readonly field: string;
  readonly args: Readonly<Record<string, unknown>>;
}

/** Throws the GraphQLErrors that make the request unfit to run. */
export function planRequest(request: ShopRequest): RequestPlan {
  const document = parse(request.query);
  const faults = validate(SHOP_SCHEMA, document);
  if (faults.length > 0) throw new RequestRefused(faults);
  const calls = rootCalls(document, request.variables ?? {});
  for (const call of calls) refuseLongLists(call);
  return {
    document,
    cost: calls.reduce((sum, call) => sum + costOf(call), 0),
    written: calls.filter(isWrite).flatMap((call) => call.args['variants'] as VariantInput[]),
  };
}

export class RequestRefused extends Error {
  readonly errors: readonly GraphQLError[];

  constructor(errors: readonly GraphQLError[]) {
    super(errors.map((error) => error.message).join('; '));
    this.name = 'RequestRefused';
    this.errors = errors;
  }
}

function rootCalls(document: DocumentNode, inputs: Readonly<Record<string, unknown>>): RootCall[] {
  const variables = variablesOf(document, inputs);
  const types = new TypeInfo(SHOP_SCHEMA);
  const calls: RootCall[] = [];
  visit(
    document,
    visitWithTypeInfo(types, {
      Field(node) {
        const parent = types.getParentType();
        const field = types.getFieldDef();
        const isRoot = parent === SHOP_SCHEMA.getQueryType() || parent === SHOP_SCHEMA.getMutationType();
        if (!field || !isRoot) return;
        calls.push({ field: field.name, args: getArgumentValues(field, node, variables) });
      },
    }),
  );
  return calls;
}

function variablesOf(document: DocumentNode, inputs: Readonly<Record<string, unknown>>) {
  const operations = document.definitions.filter(
    (definition): definition is OperationDefinitionNode => definition.kind === Kind.OPERATION_DEFINITION,
  );
  const [operation] = operations;
  if (!operation || operations.length > 1) {
    throw new RequestRefused([new GraphQLError('A request holds exactly one operation')]);
  }
  const { coerced, errors } = getVariableValues(SHOP_SCHEMA, operation.variableDefinitions ?? [], inputs);
  if (errors) throw new RequestRefused(errors);
  return coerced;
}

function refuseLongLists(call: RootCall): void {
  for (const value of Object.values(call.args)) {
    if (!Array.isArray(value) || value.length <= MAX_LIST) continue;
    const message = `${call.field} takes at most ${MAX_LIST} entries in a list, not ${value.length}`;
    throw new RequestRefused([
      new GraphQLError(message, { extensions: { code: 'MAX_INPUT_SIZE_EXCEEDED' } }),
    ]);
  }
}

function costOf(call: RootCall): number {
  if (isWrite(call)) return 10 + Math.ceil((call.args['variants'] as unknown[]).length / 10);
  if (call.field === 'nodes') return Math.max(1, (call.args['ids'] as unknown[]).length);
  return 1;
}

function isWrite(call: RootCall): boolean {
  return call.field === 'productVariantsBulkUpdate';
}
