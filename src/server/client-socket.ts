// One client's WebSocket, as graphql-ws talks to it. Invariants: a client is sent no more than it takes, so a
// slow one slows its own sources and nobody else; one that takes nothing for too long (see outbox), or leaves a
// ping unanswered that nothing holds up, is dropped; the first reason to close is the one that is told. Called
// by websocket and socket-subscription.

import type { Duplex } from 'node:stream';
import type { GraphQLFormattedError } from 'graphql';
import type { Logger } from 'pino';
import type { WebSocket } from 'ws';
import type { Viewer } from '../domain/viewer.js';
import { AppError } from '../errors.js';
import type { Admitted, LiveConnection } from './admission.js';
import type { Caller } from './auth.js';
import { Outbox, type OutboxLimits } from './outbox.js';
import { SocketWire } from './socket-wire.js';

const NOT_READING = 4413;
const OUR_FAULT = 4500;
const CODES_OF_REFUSAL: Readonly<Record<string, number>> = {
  UNAUTHENTICATED: 4401,
  FORBIDDEN: 4403,
  RATE_LIMITED: 1013,
  UNAVAILABLE: 1013,
};
/** How long a client may take to answer a close before the connection is cut. */
const CLOSE_GRACE_MS = 2_000;
/** One that has not been reading needs time to reach the close frame, and costs little meanwhile. */
const UNREAD_CLOSE_GRACE_MS = 30_000;
/** What somebody who has not been admitted may say at once: enough for a connection_init. */
const LONGEST_GREETING = 8 * 1024;
const TOO_BIG = 1009;
/** What RFC 6455 leaves for the reason in a close frame. */
const LONGEST_REASON_BYTES = 123;

export class ClientSocket implements LiveConnection {
  /** Subscriptions under way. */
  subscriptions = 0;
  /** Subscriptions that were refused since the last ping. */
  private refusals = 0;
  private alive = true;
  /** Of the outbox, when a ping had to wait behind what was sent before it. */
  private progressAtPing = Infinity;
  private right: Admitted | null = null;
  private readonly wire: SocketWire;
  private readonly outbox: Outbox;
  private cut: NodeJS.Timeout | undefined;

  constructor(
    private readonly socket: WebSocket,
    /** What the WebSocket writes to. */
    stream: Duplex,
    readonly caller: Caller,
    limits: OutboxLimits,
    private readonly log: Logger,
    /** Told that nothing more can be sent, possibly long before the socket has closed. */
    private readonly onEnd: (code: number, reason: string) => void,
  ) {
    const liveOn = (): void => void (this.alive = true);
    this.wire = new SocketWire(socket, stream, liveOn);
    this.outbox = new Outbox(this.wire, limits, () =>
      this.drop('Dropped: messages were not read fast enough'),
    );
    socket.on('pong', liveOn);
    socket.once('close', () => {
      this.outbox.clear();
      clearTimeout(this.cut);
    });
    // ws closes the socket itself, with the code that fits (1009, 1002, 1007); unheard, this would be thrown.
    socket.on('error', (err) => log.debug({ err }, 'a WebSocket client broke the protocol'));
  }

  get isOpen(): boolean {
    return this.socket.readyState === this.socket.OPEN;
  }

  get protocol(): string {
    return this.socket.protocol;
  }

  get admitted(): Admitted | null {
    return this.right;
  }

  get viewer(): Viewer {
    if (!this.right) throw new AppError('UNAUTHENTICATED', 'This socket has not been admitted.');
    return this.right.viewer;
  }

  admit(admitted: Admitted): void {
    this.right = admitted;
  }

  expel({ message, extensions }: GraphQLFormattedError): void {
    this.close(CODES_OF_REFUSAL[String(extensions?.['code'])] ?? OUR_FAULT, message);
  }

  /** An event. Done at once while the client keeps up; a promise to wait for when it does not. */
  send(data: string): Promise<void> | void {
    if (!this.isOpen) return undefined;
    return this.outbox.isClear ? this.wire.write(data) : this.outbox.put(data);
  }

  /** What is sent because the client asked. */
  answer(data: string): Promise<void> | void {
    return this.isOpen && !this.outbox.isClear ? this.outbox.putAnswer(data) : this.send(data);
  }

  onMessage(handle: (data: string) => Promise<void>): void {
    this.socket.on('message', (data) => {
      // What was on its way when we closed is not begun any more.
      if (!this.isOpen) return;
      const text = String(data);
      if (this.right === null && text.length > LONGEST_GREETING) {
        return this.close(TOO_BIG, 'Too big a message before the connection is acknowledged');
      }
      handle(text).catch((err: unknown) => {
        this.log.error({ err }, 'unforeseen error in a WebSocket message');
        this.close(OUR_FAULT, 'Something went wrong on our side');
      });
    });
  }

  close(code: number, reason: string): void {
    if (!this.isOpen) return;
    this.socket.close(code, shorten(reason));
    this.outbox.clear();
    this.cutIn(CLOSE_GRACE_MS);
    this.onEnd(code, reason);
  }

  /** The server stops: even one that was told to go before has little time now. */
  sendAway(): void {
    this.close(1001, 'Going away');
    this.cutIn(CLOSE_GRACE_MS);
  }

  /** Answers how many there were of late. */
  countRefusal(): number {
    this.refusals += 1;
    return this.refusals;
  }

  beat(): void {
    this.refusals = 0;
    // A ping waits behind what was sent before it: taking some of that is as good an answer.
    if (!this.alive && !(this.outbox.progress > this.progressAtPing)) {
      return this.drop('Dropped: a ping was not answered');
    }
    this.alive = false;
    this.socket.ping();
    this.progressAtPing = this.socket.bufferedAmount > 0 ? this.outbox.progress : Infinity;
  }

  private drop(reason: string): void {
    if (!this.isOpen) return;
    this.log.warn({ buffered: this.socket.bufferedAmount }, 'dropped a WebSocket client that does not read');
    this.close(NOT_READING, reason);
    // Whoever has shown no key is not kept for.
    if (this.right !== null) this.cutIn(UNREAD_CLOSE_GRACE_MS);
  }

  private cutIn(ms: number): void {
    clearTimeout(this.cut);
    this.cut = setTimeout(() => this.socket.terminate(), ms);
  }
}

function shorten(reason: string): string {
  return Buffer.byteLength(reason) <= LONGEST_REASON_BYTES ? reason : `${reason.slice(0, 40)}…`;
}
