// One client's WebSocket, as graphql-ws talks to it. Invariants: what is sent waits until the network took
// it, so a slow client slows its own sources and not the server; a client that lets the backlog grow past
// the limit, or leaves a ping unanswered, is dropped; the first reason to close is the one that is told.
// Called by websocket only.

import type { Logger } from 'pino';
import type { WebSocket } from 'ws';
import type { Viewer } from '../domain/viewer.js';
import { AppError } from '../errors.js';
import type { Caller, Credentials } from './auth.js';

const NOT_READING = 4413;
const OUR_FAULT = 4500;
/** How long a client may take to answer a close before the connection is cut. */
const CLOSE_GRACE_MS = 2_000;
/** What RFC 6455 leaves for the reason in a close frame. */
const LONGEST_REASON_BYTES = 123;

export class ClientSocket {
  private alive = true;
  private admitted: { readonly credentials: Credentials; readonly viewer: Viewer } | null = null;

  constructor(
    private readonly socket: WebSocket,
    readonly caller: Caller,
    private readonly maxBufferedBytes: number,
    private readonly log: Logger,
  ) {
    socket.on('pong', () => (this.alive = true));
    // ws closes the socket itself, with the code that fits (1009, 1002, 1007); unheard, this would be thrown.
    socket.on('error', (err) => log.debug({ err }, 'a WebSocket client broke the protocol'));
  }

  get protocol(): string {
    return this.socket.protocol;
  }

  /** Null until the client has been admitted. */
  get credentials(): Credentials | null {
    return this.admitted?.credentials ?? null;
  }

  get viewer(): Viewer {
    if (!this.admitted) throw new AppError('UNAUTHENTICATED', 'This socket has not been admitted.');
    return this.admitted.viewer;
  }

  admit(credentials: Credentials, viewer: Viewer): void {
    this.admitted = { credentials, viewer };
  }

  send(data: string): Promise<void> {
    if (this.socket.readyState !== this.socket.OPEN) return Promise.resolve();
    if (this.socket.bufferedAmount > this.maxBufferedBytes) {
      this.log.warn(
        { buffered: this.socket.bufferedAmount },
        'dropped a WebSocket client that does not read',
      );
      this.close(NOT_READING, 'Dropped: messages were not read fast enough');
      return Promise.resolve();
    }
    // A send that fails means the socket is going, and its close event ends the subscriptions.
    return new Promise((resolve) => this.socket.send(data, () => resolve()));
  }

  onMessage(handle: (data: string) => Promise<void>): void {
    this.socket.on('message', (data) => {
      handle(String(data)).catch((err: unknown) => {
        this.log.error({ err }, 'unforeseen error in a WebSocket message');
        this.close(OUR_FAULT, 'Something went wrong on our side');
      });
    });
  }

  close(code: number, reason: string): void {
    if (this.socket.readyState !== this.socket.OPEN) return;
    this.socket.close(code, shorten(reason));
    const cut = setTimeout(() => this.socket.terminate(), CLOSE_GRACE_MS);
    this.socket.once('close', () => clearTimeout(cut));
  }

  beat(): void {
    if (!this.alive) return this.socket.terminate();
    this.alive = false;
    this.socket.ping();
  }
}

function shorten(reason: string): string {
  return Buffer.byteLength(reason) <= LONGEST_REASON_BYTES ? reason : `${reason.slice(0, 40)}…`;
}
