// One response that stays open and carries Server-Sent Events. Invariants: a client is sent no more than it
// takes; one that takes nothing for too long (see outbox) is cut, and may come back with Last-Event-ID; whoever
// feeds it is told as soon as nothing more can be sent. Called by stream-subscription and event-streams.

import type { OutgoingHttpHeaders, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import type { FastifyReply } from 'fastify';
import type { GraphQLFormattedError } from 'graphql';
import type { Viewer } from '../domain/viewer.js';
import type { Admitted, LiveConnection } from './admission.js';
import { Outbox, type OutboxLimits, type Wire } from './outbox.js';

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
  private readonly outbox: Outbox;

  constructor(
    reply: FastifyReply,
    private right: Admitted,
    limits: OutboxLimits,
  ) {
    this.raw = reply.hijack().raw;
    this.outbox = new Outbox(new ResponseWire(this.raw), limits, () => this.cut());
    // Who left while it was found out who they are has nothing more to tell by an event.
    if (this.raw.destroyed) {
      this.finish();
      return;
    }
    this.raw.once('close', () => {
      this.finish();
      this.outbox.clear();
    });
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

  /** An event. Done at once while the client keeps up; a promise to wait for when it does not. */
  send(data: string, id: string | null = null): Promise<void> | void {
    if (this.ended) return undefined;
    const position = id === null ? '' : `id: ${id}\n`;
    const text = `${position}event: next\ndata: ${data}\n\n`;
    return this.outbox.isClear ? void this.raw.write(text) : this.outbox.put(text);
  }

  /** What nobody waits for: why there is no event, and that there will be none. */
  tell(event: 'next' | 'complete', data: string): void {
    if (this.ended) return;
    const text = `event: ${event}\ndata: ${data}\n\n`;
    if (this.outbox.isClear) this.raw.write(text);
    else void this.outbox.putAnswer(text);
  }

  /** Says why there is no subscription, where the stream was to carry only that one. */
  refuse(errors: readonly GraphQLFormattedError[]): void {
    this.tell('next', JSON.stringify({ errors }));
    this.tell('complete', '');
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
    void this.outbox.putEnd((taken) => this.raw.end(taken));
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
}

/** How texts get into a response. */
class ResponseWire implements Wire {
  constructor(private readonly raw: ServerResponse) {}

  get stream(): Duplex | null {
    return this.raw.socket;
  }

  get backlog(): number {
    return this.raw.writableLength;
  }

  get isFull(): boolean {
    return this.raw.writableNeedDrain;
  }

  write(text: string, taken: () => void): void {
    this.raw.write(text, taken);
  }
}
