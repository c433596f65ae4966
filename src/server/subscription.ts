// Runs one subscription: checks its document by the rules that HTTP applies, then shows each event of its
// source as text. Invariants: every event is executed with a fresh context, so that no per-operation cache
// serves yesterday's row; and an event that reaches several like subscriptions as the same object is executed
// and written down once for all of them, unless that failed. Alike are subscriptions of one tenant and role with
// the same shape: what is shown of an event depends on nothing else. Called by websocket and event-streams.

import {
  createSourceEventStream,
  execute,
  getOperationAST,
  GraphQLError,
  OperationTypeNode,
  type DocumentNode,
  type ExecutionArgs,
  type ExecutionResult,
  type GraphQLFormattedError,
  type GraphQLSchema,
} from 'graphql';
import type { Viewer } from '../domain/viewer.js';
import { assertAffordable, measureCost } from './cost.js';
import { DocumentCache, isRefused } from './document-cache.js';
import { requestError, type ErrorPresenter } from './errors.js';
import type { Limits } from './limits.js';
import { isConditional, isolateOperation, resumeAfter, rootFieldOf, shapeOf } from './subscription-shape.js';

export type CreateContext = (viewer: Viewer) => object | Promise<object>;

export interface SubscriptionRequest {
  readonly query: string;
  readonly operationName?: string | null | undefined;
  readonly variables?: Readonly<Record<string, unknown>> | null | undefined;
  /** Where a client that was cut off goes on: stands in for the `after` of its `runEvents`. */
  readonly lastEventId?: string | null;
}

/** An event as it is shown. Subscribers that are alike are handed the same object. */
export interface Delivery {
  /** The execution result, as JSON. */
  readonly text: string;
  /** What a client resumes with, where that is possible. */
  readonly id: string | null;
  /** It tells of errors, which may be gone when the next one asks. */
  readonly failed: boolean;
  /** Whoever is shown it may not see what comes after it either. */
  readonly isLast: boolean;
}

export interface ExecutorOptions {
  readonly schema: GraphQLSchema;
  readonly limits: Limits;
  readonly errors: ErrorPresenter;
  readonly createContext: CreateContext;
}

/** The subscription that can be resumed, by the `seq` of its events. */
const RESUMABLE = 'runEvents';

export class SubscriptionExecutor {
  private readonly documents: DocumentCache;
  private readonly shared = new SharedDeliveries();

  constructor(private readonly options: ExecutorOptions) {
    this.documents = new DocumentCache(options.schema, options.limits);
  }

  /** Events shown to subscribers since the start. */
  get deliveries(): number {
    return this.shared.count;
  }

  /** Executions, each with its serialisation, that these took. */
  get executions(): number {
    return this.shared.executions;
  }

  /** A document that cannot be read is none. */
  isSubscription({ query, operationName }: SubscriptionRequest): boolean {
    try {
      const document = this.documents.read(query);
      const operation = isRefused(document) ? null : getOperationAST(document, operationName);
      return operation?.operation === OperationTypeNode.SUBSCRIPTION;
    } catch {
      return false;
    }
  }

  /** A subscription that may run, or why it may not. The viewer is asked for anew at each event. */
  prepare(
    request: SubscriptionRequest,
    viewer: () => Viewer,
  ): PreparedSubscription | readonly GraphQLError[] {
    try {
      const { schema, limits } = this.options;
      const { operationName, variables } = request;
      const whole = this.documents.read(request.query);
      if (isRefused(whole)) return whole;
      assertSubscription(whole, operationName);
      const document = isolateOperation(whole, operationName);
      assertUnconditional(document);
      assertAffordable(measureCost({ schema, document, operationName, variables }), limits.cost);
      const execution = { schema, document, operationName, variableValues: variables };
      const shown = new ShownEvents(execution, viewer, this.options, this.shared);
      return new PreparedSubscription(execution, shown, readPosition(request.lastEventId, document));
    } catch (error) {
      return [asGraphQLError(error)];
    }
  }
}

export class PreparedSubscription {
  constructor(
    private readonly execution: ExecutionArgs,
    private readonly shown: ShownEvents,
    private readonly position: number | null,
  ) {}

  get document(): DocumentNode {
    return this.execution.document;
  }

  get operationName(): string | null | undefined {
    return this.execution.operationName;
  }

  /** Either what is to be delivered, event by event, or one result that says why there is nothing. */
  async start(): Promise<DeliveryStream | ExecutionResult> {
    try {
      const { document } = this.execution;
      const source = await createSourceEventStream({
        ...this.execution,
        document: this.position === null ? document : resumeAfter(document, this.position),
        contextValue: await this.shown.createContext(),
      });
      if (!(Symbol.asyncIterator in source)) return source;
      return new DeliveryStream(source[Symbol.asyncIterator](), this.shown);
    } catch (error) {
      return { errors: [asGraphQLError(error)] };
    }
  }
}

/**
 * An async generator function would make `return()` wait for a pending `next()`, and so a client that
 * unsubscribes wait for the next event; this one passes `return()` on at once.
 */
export class DeliveryStream {
  private ended = false;

  constructor(
    private readonly source: AsyncIterator<unknown>,
    private readonly shown: ShownEvents,
  ) {}

  /** Null at the end. */
  async next(): Promise<Delivery | null> {
    if (this.ended) return null;
    const event = await this.source.next();
    if (event.done === true) return null;
    try {
      const delivery = await this.shown.show(event.value);
      if (delivery.isLast) await this.return();
      return delivery;
    } catch (error) {
      await this.return();
      throw error;
    }
  }

  async return(): Promise<void> {
    this.ended = true;
    await this.source.return?.();
  }
}

/** How one subscription shows its events. */
class ShownEvents {
  private readonly shape: string;
  private readonly isResumable: boolean;
  private key: { readonly viewer: Viewer; readonly text: string } | null = null;

  constructor(
    private readonly execution: ExecutionArgs,
    private readonly viewer: () => Viewer,
    private readonly options: ExecutorOptions,
    private readonly deliveries: SharedDeliveries,
  ) {
    this.shape = shapeOf(execution.document, execution.variableValues);
    this.isResumable = rootFieldOf(execution.document) === RESUMABLE;
  }

  async createContext(): Promise<object> {
    return this.options.createContext(this.viewer());
  }

  show(event: unknown): Promise<Delivery> {
    return this.deliveries.of(event, this.keyFor(this.viewer()), () => this.execute(event));
  }

  private async execute(event: unknown): Promise<Delivery> {
    const contextValue = await this.createContext();
    const { data, errors } = await execute({ ...this.execution, rootValue: event, contextValue });
    const shown = errors?.map((error) => this.options.errors.present(error));
    const failed = shown !== undefined;
    // Whoever resumes after it has not seen what failed.
    const id = this.isResumable && !failed ? String((event as { readonly seq: number }).seq) : null;
    const isLast = shown?.some(isRefusalOfAll) ?? false;
    return { text: JSON.stringify({ data, errors: shown }), id, failed, isLast };
  }

  private keyFor(viewer: Viewer): string {
    if (this.key?.viewer !== viewer) {
      this.key = { viewer, text: JSON.stringify([viewer.tenantId, viewer.role, this.shape]) };
    }
    return this.key.text;
  }
}

/** Deliveries by event and key, kept no longer than the event itself; those that fail, only until they have. */
class SharedDeliveries {
  /** Handed out so far. */
  count = 0;
  executions = 0;
  private readonly byEvent = new WeakMap<object, Map<string, Promise<Delivery>>>();

  of(event: unknown, key: string, run: () => Promise<Delivery>): Promise<Delivery> {
    this.count += 1;
    const isShareable = typeof event === 'object' && event !== null;
    const deliveries = isShareable ? this.deliveriesOf(event) : null;
    const known = deliveries?.get(key);
    if (known) return known;
    this.executions += 1;
    const delivery = run();
    deliveries?.set(key, delivery);
    const drop = (): void => void deliveries?.delete(key);
    delivery.then(({ failed }) => failed && drop(), drop);
    return delivery;
  }

  private deliveriesOf(event: object): Map<string, Promise<Delivery>> {
    const known = this.byEvent.get(event);
    if (known) return known;
    const deliveries = new Map<string, Promise<Delivery>>();
    this.byEvent.set(event, deliveries);
    return deliveries;
  }
}

function assertSubscription(document: DocumentNode, operationName: string | null | undefined): void {
  const operation = getOperationAST(document, operationName);
  if (!operation) throw requestError('BAD_USER_INPUT', 'Name the operation to run by `operationName`.');
  if (operation.operation === OperationTypeNode.SUBSCRIPTION) return;
  throw requestError(
    'BAD_USER_INPUT',
    `Only subscriptions run here; send a ${operation.operation} as HTTP POST, with Accept: application/json.`,
  );
}

/** Under a condition there might be nothing to subscribe to, of which GraphQL's own rules say nothing. */
function assertUnconditional(operation: DocumentNode): void {
  if (!isConditional(operation)) return;
  const message =
    'The field of a subscription takes neither @skip nor @include, and stands in no such fragment.';
  throw requestError('BAD_USER_INPUT', message);
}

function readPosition(lastEventId: string | null | undefined, operation: DocumentNode): number | null {
  if (lastEventId === null || lastEventId === undefined || lastEventId === '') return null;
  if (rootFieldOf(operation) !== RESUMABLE) return null;
  if (/^\d{1,9}$/.test(lastEventId)) return Number(lastEventId);
  throw requestError('BAD_USER_INPUT', 'Last-Event-ID must be the id of an event that this stream has sent.');
}

/** The key may not use the subscription any more, and so none of its events. */
function isRefusalOfAll({ path, extensions }: GraphQLFormattedError): boolean {
  return path?.length === 1 && extensions?.['code'] === 'FORBIDDEN';
}

function asGraphQLError(error: unknown): GraphQLError {
  if (error instanceof GraphQLError) return error;
  const originalError = error instanceof Error ? error : new Error(String(error));
  return new GraphQLError(originalError.message, { originalError });
}
