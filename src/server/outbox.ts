// What waits to be sent to one client. Invariants: of what waits, the network is handed one text at a time (small
// ones together), so that the rest stays the text that clients share; whoever sends waits until its text was
// taken; a client is given up when it takes nothing for too long, sooner when much waits, and never for how much
// was sent to it at once, which tells of us and not of it. Called by client-socket and event-stream.

import type { Duplex } from 'node:stream';
import type { Limits } from './limits.js';

/** What a client is written to. */
export interface Wire {
  /** The connection; null when it is gone. */
  readonly stream: Duplex | null;
  /** It has enough to go on with. */
  readonly isFull: boolean;
  /** Bytes that it was given and that the network has not taken. */
  readonly backlog: number;
  write(text: string, taken: () => void): void;
}

export type OutboxLimits = Pick<Limits, 'socketBufferBytes' | 'socketStallMs'>;

interface Waiting {
  readonly size: number;
  readonly write: (taken: () => void) => void;
  readonly done: () => void;
}

/** As Node's own timeout for sockets sees a connection. */
interface Handle {
  readonly bytesWritten: number;
  readonly writeQueueSize: number;
}

/** How long a client may take nothing while more waits than it may leave waiting. */
const GRACE_MS = 2_000;
/**
 * Whether something was taken is looked at this often: it takes several looks to give a client up, and a moment
 * in which this process could not write is only one of them.
 */
const LOOK_MS = 250;
const FEWEST_LOOKS = 4;

export class Outbox {
  private readonly queue: Waiting[] = [];
  /** In the queue, in characters: to count the bytes would be to write the texts out. */
  private queued = 0;
  /** Of answers, in characters. */
  private unheardAnswers = 0;
  /** Whoever waits for what the network was handed. */
  private readonly underWay = new Set<() => void>();
  private readonly lookMs: number;
  private watch: NodeJS.Timeout | undefined;
  /** Looks in a row at which nothing had been taken. */
  private idleLooks = 0;
  private progressAtLook = 0;

  constructor(
    private readonly wire: Wire,
    private readonly limits: OutboxLimits,
    /** The client takes nothing, or asks for more than it takes. */
    private readonly onStall: () => void,
  ) {
    this.lookMs = Math.min(LOOK_MS, limits.socketStallMs / FEWEST_LOOKS);
  }

  /** What is sent now need not wait. */
  get isClear(): boolean {
    return this.queue.length === 0 && !this.wire.isFull;
  }

  /** Grows when the network takes of what it was handed: also of a long text that is still on its way. */
  get progress(): number {
    const { stream, backlog } = this.wire;
    const { _handle: handle } = (stream ?? {}) as { readonly _handle?: Handle | null };
    return handle ? handle.bytesWritten - handle.writeQueueSize : -backlog;
  }

  /** For a sender that has no more than one text here. */
  put(text: string): Promise<void> {
    return this.enqueue(text.length, (taken) => this.wire.write(text, taken));
  }

  /** An answer: whoever asks and asks, and does not take what it is answered, is given up at once. */
  async putAnswer(text: string): Promise<void> {
    this.unheardAnswers += text.length;
    if (this.unheardAnswers > this.limits.socketBufferBytes) return this.onStall();
    await this.put(text);
    this.unheardAnswers -= text.length;
  }

  /** Behind all that waits. */
  async putEnd(write: (taken: () => void) => void): Promise<void> {
    await this.enqueue(0, write);
  }

  /** Nothing that waits will be sent. */
  clear(): void {
    this.stopWatching();
    this.queued = 0;
    const senders = [...this.underWay, ...this.queue.splice(0).map(({ done }) => done)];
    this.underWay.clear();
    for (const done of senders) done();
  }

  private enqueue(size: number, write: Waiting['write']): Promise<void> {
    return new Promise((done) => {
      this.queue.push({ size, write, done });
      this.queued += size;
      this.startWatching();
      this.handOver();
    });
  }

  private handOver(): void {
    // One at least, for it is by that one that we hear of room for the others.
    while (this.queue.length > 0 && (this.underWay.size === 0 || !this.wire.isFull)) {
      const { size, write, done } = this.queue.shift()!;
      this.queued -= size;
      this.underWay.add(done);
      // What fails is taken too: its connection is going, and that ends whoever sends.
      write(() => this.taken(done));
    }
  }

  private taken(done: () => void): void {
    if (!this.underWay.delete(done)) return;
    done();
    this.handOver();
    if (this.underWay.size === 0) return this.stopWatching();
    this.idleLooks = 0;
    this.watch?.refresh();
  }

  private startWatching(): void {
    if (this.watch !== undefined) return;
    this.idleLooks = 0;
    this.progressAtLook = this.progress;
    this.watch = setInterval(() => this.look(), this.lookMs).unref();
  }

  private stopWatching(): void {
    clearInterval(this.watch);
    this.watch = undefined;
  }

  private look(): void {
    const { progress } = this;
    this.idleLooks = progress > this.progressAtLook ? 0 : this.idleLooks + 1;
    this.progressAtLook = progress;
    const { socketBufferBytes, socketStallMs } = this.limits;
    const isMuch = this.queued + this.wire.backlog > socketBufferBytes;
    const patienceMs = isMuch ? Math.min(GRACE_MS, socketStallMs) : socketStallMs;
    if (this.idleLooks * this.lookMs >= patienceMs) this.onStall();
  }
}
