// What makes two subscriptions alike, and where one goes on. The arguments of a subscription's root field
// choose its events; the rest of the operation decides how an event is shown. So subscribers that differ only
// in where they started are shown the same text. Called by subscription, for documents that are valid.

import {
  getOperationAST,
  Kind,
  print,
  separateOperations,
  visit,
  type DocumentNode,
  type FieldNode,
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
  let name: string | null = null;
  mapRootFields(operation, (field) => {
    name = field.name.value;
    return field;
  });
  return name;
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
    definitions: operation.definitions.map((definition) => {
      const holdsRootFields =
        definition.kind === Kind.OPERATION_DEFINITION ||
        (definition.kind === Kind.FRAGMENT_DEFINITION && definition.typeCondition.name.value === ROOT_TYPE);
      return holdsRootFields ? { ...definition, selectionSet: mapSet(definition.selectionSet) } : definition;
    }),
  };
}
