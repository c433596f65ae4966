// One client's WebSocket, as graphql-ws talks to it. Invariants: a client is sent no more than it takes, so a
// slow one slows its own sources and nobody else; one that takes nothing for too long, that lets the backlog
// grow past the limit, or that leaves a ping unanswered is dropped; the first reason to close is the one that
// is told. Called by websocket and socket-subscription.

import type { Duplex } from 'node:stream';
import type { GraphQLFormattedError } from 'graphql';
import type { Logger } from 'pino';
import type { WebSocket } from 'ws';
import type { Viewer } from '../domain/viewer.js';
import { AppError } from '../errors.js';
import type { Admitted, LiveConnection } from './admission.js';
import type { Caller } from './auth.js';
import type { Limits } from './limits.js';

const NOT_READING = 4413;
const OUR_FAULT = 4500;
const CODES_OF_REFUSAL: Readonly<Record<string, number>> = {
  UNAUTHENTICATED: 4401,
  FORBIDDEN: 4403,
  RATE_LIMITED: 1013,
  UNAVAILABLE: 1013,
};
/** What may wait to be taken before a sender waits too: the network's own buffers come on top. */
const AHEAD_BYTES = 16 * 1024;
/** How long a client may take to answer a close before the connection is cut. */
const CLOSE_GRACE_MS = 2_000;
/** One that has not been reading needs time to reach the close frame, and costs little meanwhile. */
const UNREAD_CLOSE_GRACE_MS = 30_000;
/** What somebody who has not been admitted may say at once: enough for a connection_init. */
const LONGEST_GREETING = 8 * 1024;
const TOO_BIG = 1009;
/** What RFC 6455 leaves for the reason in a close frame. */
const LONGEST_REASON_BYTES = 123;

export type SocketLimits = Pick<Limits, 'socketBufferBytes' | 'socketStallMs'>;

export class ClientSocket implements LiveConnection {
  /** Subscriptions under way. */
  subscriptions = 0;
  /** Subscriptions that were refused since the last ping. */
  private refusals = 0;
  private alive = true;
  private right: Admitted | null = null;
  private turn: 'idle' | 'sent' | 'corked' = 'idle';
  /** Senders that wait until the network has taken what they sent. */
  private waiting = 0;
  private stall: NodeJS.Timeout | undefined;
  private cut: NodeJS.Timeout | undefined;

  constructor(
    private readonly socket: WebSocket,
    /** What the WebSocket writes to. */
    private readonly stream: Duplex,
    readonly caller: Caller,
    private readonly limits: SocketLimits,
    private readonly log: Logger,
    /** Told that nothing more can be sent, possibly long before the socket has closed. */
    private readonly onEnd: (code: number, reason: string) => void,
  ) {
    socket.on('pong', () => (this.alive = true));
    socket.once('close', () => {
      clearTimeout(this.stall);
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

  /** Done at once while the client keeps up; a promise to wait for when it does not. */
  send(data: string): Promise<void> | void {
    const { socket } = this;
    if (!this.isOpen) return undefined;
    this.gather();
    if (socket.bufferedAmount < AHEAD_BYTES) return socket.send(data);
    if (socket.bufferedAmount > this.limits.socketBufferBytes) return this.drop();
    return this.sendAndWait(data);
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
    if (this.alive) {
      this.alive = false;
      this.socket.ping();
    } else if (this.socket.bufferedAmount > 0) {
      this.drop();
    } else {
      this.socket.terminate();
    }
  }

  /**
   * The first message of a turn of the event loop goes out at once, the rest of that turn in one write: most
   * of the cost of a message is in the call.
   */
  private gather(): void {
    if (this.turn === 'corked') return;
    if (this.turn === 'sent') {
      this.stream.cork();
      this.turn = 'corked';
    } else {
      this.turn = 'sent';
      process.nextTick(this.endTurn);
    }
  }

  private readonly endTurn = (): void => {
    if (this.turn === 'corked') this.stream.uncork();
    this.turn = 'idle';
  };

  private sendAndWait(data: string): Promise<void> {
    this.waiting += 1;
    this.stall ??= setTimeout(() => this.drop(), this.limits.socketStallMs);
    return new Promise((resolve) => {
      // A send that fails means the socket is going, and its close event ends the subscriptions.
      this.socket.send(data, () => {
        this.taken();
        resolve();
      });
    });
  }

  private taken(): void {
    this.waiting -= 1;
    // A ping waits behind what was sent before it: taking that is as good an answer.
    this.alive = true;
    if (this.waiting > 0) {
      this.stall?.refresh();
    } else {
      clearTimeout(this.stall);
      this.stall = undefined;
    }
  }

  private drop(): void {
    if (!this.isOpen) return;
    this.log.warn({ buffered: this.socket.bufferedAmount }, 'dropped a WebSocket client that does not read');
    this.close(NOT_READING, 'Dropped: messages were not read fast enough');
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
