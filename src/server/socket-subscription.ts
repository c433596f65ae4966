// One subscription on one socket. graphql-ws owns its life (start, complete, end of the socket) and is handed
// an iterator that never yields: each event goes to the client as a frame around text that like subscriptions
// share, instead of being written down anew for every client. Called by websocket.

import type { DocumentNode, ExecutionArgs, ExecutionResult, GraphQLSchema } from 'graphql';
import { inSpan } from '../tracing.js';
import type { ClientSocket } from './client-socket.js';
import { DeliveryStream, type PreparedSubscription } from './subscription.js';

export interface SocketRequest {
  readonly client: ClientSocket;
  readonly id: string;
  /** The trace that its sender has begun. */
  readonly traceparent: string | null;
}

export class SocketSubscription implements ExecutionArgs {
  readonly document: DocumentNode;
  readonly operationName: string | null | undefined;
  private readonly opening: string;

  constructor(
    readonly schema: GraphQLSchema,
    private readonly prepared: PreparedSubscription,
    private readonly request: SocketRequest,
    private readonly onEnd: () => void,
  ) {
    this.document = prepared.document;
    this.operationName = prepared.operationName;
    this.opening = `{"id":${JSON.stringify(request.id)},"type":"next","payload":`;
  }

  start(): Promise<FramePump | ExecutionResult> {
    const name = `subscription ${this.operationName ?? ''}`.trimEnd();
    return inSpan({ name, kind: 'server', parent: this.request.traceparent }, () => this.open());
  }

  private async open(): Promise<FramePump | ExecutionResult> {
    const started = await this.prepared.start();
    if (started instanceof DeliveryStream) {
      return new FramePump(started, this.request.client, this.opening, this.onEnd);
    }
    this.onEnd();
    return started;
  }
}

class FramePump implements AsyncGenerator<never, void, void> {
  private ended = false;

  constructor(
    private readonly deliveries: DeliveryStream,
    private readonly client: ClientSocket,
    private readonly opening: string,
    private readonly onEnd: () => void,
  ) {}

  /** Settles when there is nothing more to deliver. */
  async next(): Promise<IteratorResult<never, void>> {
    try {
      for (;;) {
        const delivery = await this.deliveries.next();
        // A source that always has more would otherwise go on for nobody, and never let the socket's end be heard.
        if (delivery === null || this.ended || !this.client.isOpen) break;
        const sent = this.client.send(`${this.opening}${delivery.text}}`);
        if (sent) await sent;
      }
    } finally {
      await this.return();
    }
    return { done: true, value: undefined };
  }

  async return(): Promise<IteratorResult<never, void>> {
    this.end();
    await this.deliveries.return();
    return { done: true, value: undefined };
  }

  async throw(error: unknown): Promise<IteratorResult<never, void>> {
    await this.return();
    throw error;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }

  private end(): void {
    if (this.ended) return;
    this.ended = true;
    this.onEnd();
  }
}
