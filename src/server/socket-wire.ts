// How texts get into a WebSocket: those of one turn of the event loop together. Called by client-socket and outbox.

import type { Duplex } from 'node:stream';
import type { WebSocket } from 'ws';
import type { Wire } from './outbox.js';

/** What may wait to be taken before a sender waits too: the network's own buffers come on top. */
const AHEAD_BYTES = 16 * 1024;

export class SocketWire implements Wire {
  private turn: 'idle' | 'sent' | 'corked' = 'idle';

  constructor(
    private readonly socket: WebSocket,
    /** What the WebSocket writes to. */
    readonly stream: Duplex,
    /** Something had to wait, and was taken. */
    private readonly onTaken: () => void,
  ) {}

  get backlog(): number {
    return this.socket.bufferedAmount;
  }

  get isFull(): boolean {
    return this.socket.bufferedAmount >= AHEAD_BYTES;
  }

  write(text: string, taken?: () => void): void {
    this.gather();
    if (!taken) return this.socket.send(text);
    this.socket.send(text, () => {
      this.onTaken();
      taken();
    });
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
}
