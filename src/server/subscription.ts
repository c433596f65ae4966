// Runs one subscription: checks its document by the rules that HTTP applies, then executes it for each event
// of its source. Invariants: every event is executed with a fresh context, so that no per-operation cache
// serves yesterday's row; and an event that reaches several like subscriptions as the same object is executed
// once for all of them. Called by websocket.

import {
  createSourceEventStream,
  execute,
  getOperationAST,
  GraphQLError,
  OperationTypeNode,
  parse,
  specifiedRules,
  validate,
  type DocumentNode,
  type ExecutionArgs,
  type ExecutionResult,
  type GraphQLSchema,
  type ValidationRule,
} from 'graphql';
import type { SubscribePayload } from 'graphql-ws';
import type { Viewer } from '../domain/viewer.js';
import { assertAffordable, measureCost } from './cost.js';
import { requestError } from './errors.js';
import { documentRules, type Limits } from './limits.js';

export type CreateContext = (viewer: Viewer) => object | Promise<object>;

export class SubscriptionExecutor {
  private readonly rules: readonly ValidationRule[];
  private readonly results = new SharedResults();

  constructor(
    private readonly schema: GraphQLSchema,
    private readonly limits: Limits,
    private readonly createContext: CreateContext,
  ) {
    this.rules = [...specifiedRules, ...documentRules(limits)];
  }

  /** A subscription that may run, or why it may not. The viewer is asked for anew at each event. */
  prepare(payload: SubscribePayload, viewer: () => Viewer): PreparedSubscription | readonly GraphQLError[] {
    try {
      const document = parse(payload.query, { maxTokens: this.limits.tokens });
      const invalid = validate(this.schema, document, this.rules);
      if (invalid.length > 0) return invalid;
      const { operationName, variables } = payload;
      assertSubscription(document, operationName);
      const cost = measureCost({ schema: this.schema, document, operationName, variables });
      assertAffordable(cost, this.limits.cost);
      const createContext = async (): Promise<object> => this.createContext(viewer());
      const execution = { schema: this.schema, document, operationName, variableValues: variables };
      return new PreparedSubscription(execution, createContext, (event, run) =>
        this.results.of(event, keyOf(payload, viewer()), run),
      );
    } catch (error) {
      return [asGraphQLError(error)];
    }
  }
}

type ShareResult = (event: unknown, run: () => Promise<ExecutionResult>) => Promise<ExecutionResult>;

export class PreparedSubscription implements ExecutionArgs {
  readonly schema: GraphQLSchema;
  readonly document: DocumentNode;

  constructor(
    private readonly execution: ExecutionArgs,
    private readonly createContext: () => Promise<object>,
    private readonly share: ShareResult,
  ) {
    this.schema = execution.schema;
    this.document = execution.document;
  }

  get operationName(): string | null | undefined {
    return this.execution.operationName;
  }

  /** Either the results, event by event, or one result that says why there are none. */
  async start(): Promise<AsyncGenerator<ExecutionResult, void, void> | ExecutionResult> {
    try {
      const contextValue = await this.createContext();
      const source = await createSourceEventStream({ ...this.execution, contextValue });
      if (!(Symbol.asyncIterator in source)) return source;
      return new ResultStream(source[Symbol.asyncIterator](), (event) =>
        this.share(event, () => this.execute(event)),
      );
    } catch (error) {
      return { errors: [asGraphQLError(error)] };
    }
  }

  private async execute(event: unknown): Promise<ExecutionResult> {
    return execute({ ...this.execution, rootValue: event, contextValue: await this.createContext() });
  }
}

function assertSubscription(document: DocumentNode, operationName: string | null | undefined): void {
  const operation = getOperationAST(document, operationName);
  if (!operation) throw requestError('BAD_USER_INPUT', 'Name the operation to run by `operationName`.');
  if (operation.operation === OperationTypeNode.SUBSCRIPTION) return;
  throw requestError(
    'BAD_USER_INPUT',
    `Only subscriptions run over the WebSocket; send a ${operation.operation} as HTTP POST to this same address.`,
  );
}

function asGraphQLError(error: unknown): GraphQLError {
  if (error instanceof GraphQLError) return error;
  const originalError = error instanceof Error ? error : new Error(String(error));
  return new GraphQLError(originalError.message, { originalError });
}

/** Two subscriptions with the same key show the same thing for the same event. */
function keyOf({ query, operationName, variables }: SubscribePayload, viewer: Viewer): string {
  return JSON.stringify([query, operationName ?? null, variables ?? null, viewer]);
}

/** Results by event and key, kept no longer than the event itself. */
class SharedResults {
  private readonly byEvent = new WeakMap<object, Map<string, Promise<ExecutionResult>>>();

  of(event: unknown, key: string, run: () => Promise<ExecutionResult>): Promise<ExecutionResult> {
    if (typeof event !== 'object' || event === null) return run();
    const results = this.byEvent.get(event) ?? new Map<string, Promise<ExecutionResult>>();
    this.byEvent.set(event, results);
    const result = results.get(key) ?? run();
    results.set(key, result);
    return result;
  }
}

/**
 * An async generator function would make `return()` wait for a pending `next()`, and so a client that
 * unsubscribes wait for the next event; this one passes `return()` on at once.
 */
class ResultStream implements AsyncGenerator<ExecutionResult, void, void> {
  constructor(
    private readonly source: AsyncIterator<unknown>,
    private readonly executeEvent: (event: unknown) => Promise<ExecutionResult>,
  ) {}

  async next(): Promise<IteratorResult<ExecutionResult, void>> {
    const event = await this.source.next();
    if (event.done === true) return { done: true, value: undefined };
    try {
      return { done: false, value: await this.executeEvent(event.value) };
    } catch (error) {
      await this.source.return?.();
      throw error;
    }
  }

  async return(): Promise<IteratorResult<ExecutionResult, void>> {
    await this.source.return?.();
    return { done: true, value: undefined };
  }

  async throw(error: unknown): Promise<IteratorResult<ExecutionResult, void>> {
    await this.source.return?.();
    throw error;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }
}
