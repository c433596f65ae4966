// One response that stays open and carries Server-Sent Events. Invariants: a client is sent no more than it
// takes; one that takes nothing for too long, or lets the backlog grow past the limit, is cut, and may come back
// with Last-Event-ID; whoever feeds it is told as soon as nothing more can be sent. Called by stream-subscription
// and event-streams.

import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import type { FastifyReply } from 'fastify';
import type { GraphQLFormattedError } from 'graphql';
import type { Viewer } from '../domain/viewer.js';
import type { Admitted, LiveConnection } from './admission.js';
import type { Limits } from './limits.js';

const HEADERS = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache, no-transform',
  // nginx would hold events back until it has a bufferful.
  'x-accel-buffering': 'no',
} as const;
/** A comment, which clients pass over. */
const HEARTBEAT = ':\n\n';

/** A subscription as the stream knows it. */
export interface Carried {
  /** Says why there is nothing more, in the words of its protocol. */
  refuse(errors: readonly GraphQLFormattedError[]): void;
  /** Nothing more can be sent. */
  cancel(): void;
}

export class EventStream implements LiveConnection {
  private readonly carried = new Set<Carried>();
  private readonly raw: ServerResponse;
  private readonly handlers = new Set<() => void>();
  private ended = false;
  /** Settles when the client has taken what waits for it. */
  private taking: Promise<void> | null = null;
  private stall: NodeJS.Timeout | undefined;

  constructor(
    reply: FastifyReply,
    private right: Admitted,
    private readonly limits: Pick<Limits, 'socketStallMs' | 'socketBufferBytes'>,
  ) {
    this.raw = reply.hijack().raw;
    // Who left while it was found out who they are has nothing more to tell by an event.
    if (this.raw.destroyed) {
      this.finish();
      return;
    }
    this.raw.once('close', () => this.finish());
    this.raw.writeHead(200, { ...(reply.getHeaders() as OutgoingHttpHeaders), ...HEADERS });
    this.raw.write(HEARTBEAT);
  }

  get admitted(): Admitted {
    return this.right;
  }

  get viewer(): Viewer {
    return this.right.viewer;
  }

  admit(admitted: Admitted): void {
    this.right = admitted;
  }

  expel(shown: GraphQLFormattedError): void {
    for (const subscription of this.carried) subscription.refuse([shown]);
    this.end();
  }

  /** Subscriptions under way. */
  get subscriptions(): number {
    return this.carried.size;
  }

  /** Answers how to take it off again. */
  carry(subscription: Carried): () => void {
    this.carried.add(subscription);
    const forget = this.onEnd(() => subscription.cancel());
    return () => {
      forget();
      this.carried.delete(subscription);
    };
  }

  /** Done at once while the client keeps up; a promise to wait for when it does not. */
  send(event: 'next' | 'complete', data: string, id: string | null = null): Promise<void> | void {
    if (this.ended) return undefined;
    // Several subscriptions may wait here, each with an event of its own.
    if (this.raw.writableLength > this.limits.socketBufferBytes) return this.cut();
    const position = id === null ? '' : `id: ${id}\n`;
    const isTaken = this.raw.write(`${position}event: ${event}\ndata: ${data}\n\n`, () =>
      this.stall?.refresh(),
    );
    return isTaken ? undefined : this.taken();
  }

  /** Says why there is no subscription, where the stream was to carry only that one. */
  refuse(errors: readonly GraphQLFormattedError[]): void {
    void this.send('next', JSON.stringify({ errors }));
    void this.send('complete', '');
  }

  beat(): void {
    if (!this.ended) this.raw.write(HEARTBEAT);
  }

  /** Called once, when nothing more can be sent; answers how to take it back. */
  onEnd(handle: () => void): () => void {
    if (this.ended) handle();
    else this.handlers.add(handle);
    return () => this.handlers.delete(handle);
  }

  end(): void {
    if (this.ended) return;
    this.finish();
    this.watchForStall();
    this.raw.end(() => clearTimeout(this.stall));
  }

  /** Told at once: a source that always has more would never let the connection's own end be heard. */
  private cut(): void {
    this.finish();
    this.raw.destroy();
  }

  private finish(): void {
    this.ended = true;
    const handlers = [...this.handlers];
    this.handlers.clear();
    for (const handle of handlers) handle();
  }

  /** Those who wait for the same client wait together. */
  private taken(): Promise<void> {
    this.taking ??= this.drained().finally(() => (this.taking = null));
    return this.taking;
  }

  private drained(): Promise<void> {
    const { raw } = this;
    this.watchForStall();
    return new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(this.stall);
        raw.off('drain', done).off('close', done);
        resolve();
      };
      raw.on('drain', done).on('close', done);
    });
  }

  /** Begins anew with each event that the client takes. */
  private watchForStall(): void {
    clearTimeout(this.stall);
    this.stall = setTimeout(() => this.raw.destroy(), this.limits.socketStallMs).unref();
  }
}
