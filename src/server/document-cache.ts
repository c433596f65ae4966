// The documents of subscriptions, read and checked by the rules that HTTP applies. Invariant: the last that were
// found valid are kept, up to a number and a length. Called by subscription.

import {
  parse,
  specifiedRules,
  validate,
  type DocumentNode,
  type GraphQLError,
  type GraphQLSchema,
  type ValidationRule,
} from 'graphql';
import { documentRules, type Limits } from './limits.js';

/** After a restart thousands of clients come back with the same few documents. */
export class DocumentCache {
  private static readonly MAX_DOCUMENTS = 200;
  private static readonly MAX_LENGTH = 20_000;
  private readonly rules: readonly ValidationRule[];
  private readonly documents = new Map<string, DocumentNode>();

  constructor(
    private readonly schema: GraphQLSchema,
    private readonly limits: Limits,
  ) {
    this.rules = [...specifiedRules, ...documentRules(limits)];
  }

  read(query: string): DocumentNode | readonly GraphQLError[] {
    const known = this.documents.get(query);
    if (known) return known;
    const document = parse(query, { maxTokens: this.limits.tokens });
    const invalid = validate(this.schema, document, this.rules);
    if (invalid.length > 0) return invalid;
    if (query.length <= DocumentCache.MAX_LENGTH) this.keep(query, document);
    return document;
  }

  private keep(query: string, document: DocumentNode): void {
    const [oldest] = this.documents.keys();
    if (this.documents.size >= DocumentCache.MAX_DOCUMENTS) this.documents.delete(oldest!);
    this.documents.set(query, document);
  }
}

export function isRefused(read: DocumentNode | readonly GraphQLError[]): read is readonly GraphQLError[] {
  return Array.isArray(read);
}
