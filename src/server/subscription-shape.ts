// What makes two subscriptions alike, and where one goes on. The arguments of a subscription's root field
// choose its events; the rest of the operation decides how an event is shown. So subscribers that differ only
// in where they started are shown the same text. Called by subscription, for documents that are valid.

import {
  getOperationAST,
  Kind,
  print,
  separateOperations,
  visit,
  type DefinitionNode,
  type DocumentNode,
  type FieldNode,
  type FragmentDefinitionNode,
  type OperationDefinitionNode,
  type SelectionNode,
  type SelectionSetNode,
} from 'graphql';

const ROOT_TYPE = 'Subscription';

type Variables = Readonly<Record<string, unknown>> | null | undefined;

/** One operation of a document, with the fragments that it uses. */
export function isolateOperation(
  document: DocumentNode,
  operationName: string | null | undefined,
): DocumentNode {
  const name = operationName ?? getOperationAST(document)?.name?.value ?? '';
  return separateOperations(document)[name] ?? document;
}

/** Equal for operations, with their variables, that show every event in the same way. */
export function shapeOf(operation: DocumentNode, variables: Variables): string {
  const shown = mapRootFields(operation, (field) => ({ ...field, arguments: [] }));
  const used = new Set<string>();
  visit(shown, {
    // A declaration is no use.
    VariableDefinition: () => false,
    Variable: ({ name }) => void used.add(name.value),
  });
  const text = print(
    visit(shown, { VariableDefinition: ({ variable }) => (used.has(variable.name.value) ? false : null) }),
  );
  // One that is not given has its default; one that is given as null has not.
  const given = [...used].sort().filter((name) => Object.hasOwn(variables ?? {}, name));
  return JSON.stringify([text, given.map((name) => [name, variables![name]])]);
}

/** The field whose events are asked for: a valid subscription has exactly one. */
export function rootFieldOf(operation: DocumentNode): string | null {
  const field = rootSelectionsOf(operation).find((selection) => selection.kind === Kind.FIELD);
  return field?.name.value ?? null;
}

/** Whether that field is there only under a condition. */
export function isConditional(operation: DocumentNode): boolean {
  const directives = rootSelectionsOf(operation).flatMap((selection) => selection.directives ?? []);
  return directives.some(({ name }) => name.value === 'skip' || name.value === 'include');
}

/** Fields of the root, and the fragments that they stand in. */
function rootSelectionsOf({ definitions }: DocumentNode): SelectionNode[] {
  const within = ({ selections }: SelectionSetNode): SelectionNode[] =>
    selections.flatMap((selection) =>
      selection.kind === Kind.INLINE_FRAGMENT ? [selection, ...within(selection.selectionSet)] : [selection],
    );
  return definitions.filter(holdsRootFields).flatMap(({ selectionSet }) => within(selectionSet));
}

/** The same subscription, with the root field's `after` set. */
export function resumeAfter(operation: DocumentNode, seq: number): DocumentNode {
  const after = {
    kind: Kind.ARGUMENT,
    name: { kind: Kind.NAME, value: 'after' },
    value: { kind: Kind.INT, value: String(seq) },
  } as const;
  return mapRootFields(operation, (field) => ({
    ...field,
    arguments: [...(field.arguments ?? []).filter(({ name }) => name.value !== 'after'), after],
  }));
}

function mapRootFields(operation: DocumentNode, change: (field: FieldNode) => FieldNode): DocumentNode {
  const mapSet = (set: SelectionSetNode): SelectionSetNode => ({
    ...set,
    selections: set.selections.map((selection) => {
      if (selection.kind === Kind.FIELD) return change(selection);
      if (selection.kind === Kind.FRAGMENT_SPREAD) return selection;
      return { ...selection, selectionSet: mapSet(selection.selectionSet) };
    }),
  });
  return {
    ...operation,
    definitions: operation.definitions.map((definition) =>
      holdsRootFields(definition)
        ? { ...definition, selectionSet: mapSet(definition.selectionSet) }
        : definition,
    ),
  };
}

function holdsRootFields(
  definition: DefinitionNode,
): definition is OperationDefinitionNode | FragmentDefinitionNode {
  if (definition.kind === Kind.OPERATION_DEFINITION) return true;
  return definition.kind === Kind.FRAGMENT_DEFINITION && definition.typeCondition.name.value === ROOT_TYPE;
}
