// What one caller may ask of the server, and the validation rules that refuse a document by its shape.
// Invariant: HTTP and WebSocket apply the same rules to every document. Called by apollo and subscription;
// the cost of an operation, which depends on its variables, is in cost.ts.

import {
  GraphQLError,
  Kind,
  visit,
  type ASTVisitor,
  type DocumentNode,
  type FragmentDefinitionNode,
  type SelectionSetNode,
  type ValidationContext,
  type ValidationRule,
} from 'graphql';

const KIB = 1024;
const MIB = 1024 * KIB;

export interface Limits {
  readonly bodyBytes: number;
  /** Lexical tokens of a document: room for about 2,000 inlined targets; more belongs in variables. */
  readonly tokens: number;
  /** Fields and fragments written in a document; validation compares them pair by pair. */
  readonly selections: number;
  readonly depth: number;
  readonly aliases: number;
  /** Room for a page of 1,000 targets with every field and history; see cost.ts for what it counts. */
  readonly cost: number;
  readonly socketMessageBytes: number;
  /** More than this waiting, and a client that does not read is dropped sooner; of answers, it is dropped at once. */
  readonly socketBufferBytes: number;
  /** How long a client may take nothing of what is waiting for it before it is dropped. */
  readonly socketStallMs: number;
  readonly subscriptionsPerSocket: number;
  /** Per server process. */
  readonly subscriptionsPerKey: number;
  /** Event streams that carry several subscriptions, reserved or open; per server process. */
  readonly reservedStreamsPerKey: number;
  /** Time in which a new socket must send connection_init. */
  readonly connectionInitMs: number;
  /** Between pings; a socket that left one unanswered is dropped at the next. */
  readonly pingMs: number;
  /** How long a revoked key can keep its connections if its revocation is not heard of. */
  readonly reauthenticateMs: number;
  /** How long requests in flight may take to finish once the server stops. */
  readonly drainMs: number;
}

export const DEFAULT_LIMITS: Limits = {
  bodyBytes: 10 * MIB,
  tokens: 50_000,
  selections: 1_000,
  depth: 12,
  aliases: 30,
  cost: 50_000,
  socketMessageBytes: MIB,
  socketBufferBytes: MIB,
  socketStallMs: 10_000,
  subscriptionsPerSocket: 100,
  subscriptionsPerKey: 5_000,
  reservedStreamsPerKey: 1_000,
  connectionInitMs: 5_000,
  pingMs: 12_000,
  reauthenticateMs: 30_000,
  drainMs: 10_000,
};

export function documentRules(limits: Limits): readonly ValidationRule[] {
  return [(context) => selectionsRule(context, limits.selections), (context) => shapeRule(context, limits)];
}

function selectionsRule(context: ValidationContext, maximum: number): ASTVisitor {
  return {
    Document(document) {
      const count = countSelections(document);
      if (count <= maximum) return undefined;
      context.reportError(
        new GraphQLError(`The document has ${count} fields and fragments; at most ${maximum} are allowed.`),
      );
      // Null takes the document away from this traversal, so that no rule that is quadratic in the number
      // of fields ever sees it.
      return null;
    },
  };
}

function countSelections(document: DocumentNode): number {
  let count = 0;
  visit(document, { SelectionSet: (set) => void (count += set.selections.length) });
  return count;
}

function shapeRule(context: ValidationContext, limits: Limits): ASTVisitor {
  const shapes = new ShapeMeter(context);
  return {
    OperationDefinition(operation) {
      const { depth, aliases } = shapes.measure(operation.selectionSet);
      if (depth > limits.depth) {
        const message = `The operation is ${depth} levels deep; at most ${limits.depth} are allowed.`;
        context.reportError(new GraphQLError(message, { nodes: operation }));
      }
      if (aliases > limits.aliases) {
        const message = `The operation uses ${aliases} aliases; at most ${limits.aliases} are allowed.`;
        context.reportError(new GraphQLError(message, { nodes: operation }));
      }
    },
  };
}

interface Shape {
  readonly depth: number;
  readonly aliases: number;
}

const FLAT: Shape = { depth: 0, aliases: 0 };

/** Measures selections with their fragments spread out, each fragment only once. */
class ShapeMeter {
  private readonly fragments = new Map<FragmentDefinitionNode, Shape>();

  constructor(private readonly context: ValidationContext) {}

  measure(set: SelectionSetNode | undefined): Shape {
    let depth = 0;
    let aliases = 0;
    for (const selection of set?.selections ?? []) {
      const inner = this.measureSelection(selection);
      depth = Math.max(depth, inner.depth);
      aliases += inner.aliases;
    }
    return { depth, aliases };
  }

  private measureSelection(selection: SelectionSetNode['selections'][number]): Shape {
    if (selection.kind === Kind.INLINE_FRAGMENT) return this.measure(selection.selectionSet);
    if (selection.kind === Kind.FRAGMENT_SPREAD) return this.measureFragment(selection.name.value);
    // Introspection is as deep as it is, and GraphQL's own rules keep it from growing.
    if (selection.name.value === '__schema' || selection.name.value === '__type') return FLAT;
    const inner = this.measure(selection.selectionSet);
    return { depth: inner.depth + 1, aliases: inner.aliases + (selection.alias ? 1 : 0) };
  }

  private measureFragment(name: string): Shape {
    const fragment = this.context.getFragment(name);
    if (!fragment) return FLAT;
    const known = this.fragments.get(fragment);
    if (known) return known;
    // Stands in for a fragment that spreads itself, which another rule refuses.
    this.fragments.set(fragment, FLAT);
    const shape = this.measure(fragment.selectionSet);
    this.fragments.set(fragment, shape);
    return shape;
  }
}
