// The WebSocket that all subscriptions of a client share. Opened by the first, closed after the last. Invariants:
// a connection that is never made, or has died without a word, is noticed by its silence; one that ends, in
// whatever way, interrupts whoever it served, and is never taken up behind their backs.

import { createClient, type Client, type FormattedExecutionResult, type Sink } from 'graphql-ws/client';

export interface ConnectionOptions {
  /** Address of the GraphQL endpoint: http, https, ws or wss. */
  readonly url: string;
  /** Asked for anew at each connection when it is a function, and once more when the key that it gave is refused. */
  readonly apiKey?: string | (() => string | Promise<string>);
  /** Where there is no global WebSocket, as in Node before 22: that of the package `ws`. */
  readonly webSocketImpl?: unknown;
  /** A connection that is silent is asked for a sign of life after so long, and given up after twice as long; 10,000. */
  readonly heartbeatMs?: number;
  /** How long it may take to be let in; 10,000. */
  readonly greetingMs?: number;
}

export type Variables = Readonly<Record<string, unknown>>;
export type Result = FormattedExecutionResult<Record<string, unknown>>;

const HEARTBEAT_MS = 10_000;
const GREETING_MS = 10_000;
const OPEN = 1;
const NORMAL_CLOSURE = 1000;
const MESSAGE_TOO_BIG = 1009;
const KEY_REFUSED = 4401;
/** The server takes 1 MiB; of that, room for what stands around a subscription. */
const LARGEST_SUBSCRIPTION = 2 ** 20 - 1024;

type Timer = ReturnType<typeof setTimeout> | undefined;

/** What is needed of one here. */
interface Socket extends EventTarget {
  readonly readyState: number;
  send(data: string): void;
}

interface Ending {
  readonly code?: number;
  readonly target?: unknown;
}

type SocketClass = new (url: string, protocols?: string | string[]) => Socket;

export class Connection {
  private readonly client: Client;
  /** Who is served, and by which socket once there is one. */
  private readonly sinks = new Map<Sink<Result>, Socket | null>();
  /** The last that let us in. */
  private socket: Socket | null = null;
  private greeting: Timer;
  private silence: Timer;
  /** Who wants to know when the server has heard what they asked for. */
  private readonly unheard = new Set<() => void>();
  private readonly questions = new Map<number, readonly (() => void)[]>();
  private questionsAsked = 0;
  private readonly asksForKeys: boolean;
  /** In a row. */
  private keysRefused = 0;

  constructor(options: ConnectionOptions) {
    const { url, apiKey, webSocketImpl, heartbeatMs = HEARTBEAT_MS, greetingMs = GREETING_MS } = options;
    this.asksForKeys = typeof apiKey === 'function';
    this.client = createClient({
      url: url.replace(/^http/, 'ws'),
      webSocketImpl: hardened(webSocketImpl ?? (globalThis as { WebSocket?: unknown }).WebSocket),
      // Its own retries would ask again from the beginning.
      retryAttempts: 0,
      keepAlive: heartbeatMs,
      connectionParams: async () => {
        const key = typeof apiKey === 'function' ? await apiKey() : apiKey;
        return key === undefined ? {} : { authorization: `Bearer ${key}` };
      },
      on: {
        connecting: () => {
          clearTimeout(this.greeting);
          this.greeting = this.giveUpAfter(greetingMs);
        },
        connected: (socket) => {
          this.greeting = clear(this.greeting);
          this.keysRefused = 0;
          this.serveBy(socket as Socket);
          this.askWhatWasHeard();
        },
        ping: (isTheirs) => {
          if (!isTheirs) this.expectLife(heartbeatMs);
        },
        message: ({ type }) => {
          // Others may stand before the pong; without it there would be no further ping.
          if (type === 'pong') this.silence = clear(this.silence);
          else if (this.silence !== undefined) this.expectLife(heartbeatMs);
        },
        pong: (isTheirs, payload) => {
          if (isTheirs) this.hear(Number(payload?.['heard']));
        },
        closed: (event) => this.lose(event as Ending),
        error: () => (this.greeting = clear(this.greeting)),
      },
    });
  }

  /** Answers how to end it. */
  subscribe(query: string, variables: Variables, sink: Sink<Result>): () => void {
    if (bytesOf({ query, variables }) > LARGEST_SUBSCRIPTION) {
      // The server would close the socket, under everybody else too.
      queueMicrotask(() => sink.error({ code: MESSAGE_TOO_BIG, reason: 'The subscription is too large' }));
      return () => {};
    }
    const stop = this.client.subscribe<Record<string, unknown>>({ query, variables: { ...variables } }, sink);
    this.sinks.set(sink, this.openSocket);
    return () => {
      this.sinks.delete(sink);
      // Within a message, graphql-ws would count one twice that the next message completes, and close too early.
      queueMicrotask(stop);
    };
  }

  /** Calls back when the server has heard all that was subscribed so far; answers how to take that back. */
  whenHeard(handle: () => void): () => void {
    this.unheard.add(handle);
    this.askWhatWasHeard();
    return () => this.unheard.delete(handle);
  }

  /** The key that was refused last may have been changed for another meanwhile. */
  get mayHaveNewKey(): boolean {
    return this.asksForKeys && this.keysRefused === 1;
  }

  close(): void {
    clearTimeout(this.silence);
    // It would wait for a connection that is being made, and fail with it.
    this.client.dispose()?.catch(() => {});
    if (this.greeting !== undefined) this.client.terminate();
  }

  private expectLife(withinMs: number): void {
    clearTimeout(this.silence);
    this.silence = this.giveUpAfter(withinMs);
  }

  private giveUpAfter(ms: number): Timer {
    return setTimeout(() => this.client.terminate(), ms);
  }

  private lose({ code, target }: Ending): void {
    this.greeting = clear(this.greeting);
    this.silence = clear(this.silence);
    this.questions.clear();
    if (code === KEY_REFUSED) this.keysRefused += 1;
    // Closed as if all were well, graphql-ws would subscribe anew, from where each subscription began.
    if (code !== NORMAL_CLOSURE) return;
    for (const [sink, socket] of [...this.sinks]) {
      if (socket !== null && socket === target) sink.error({ code, reason: 'The server left' });
    }
  }

  private get openSocket(): Socket | null {
    return this.socket?.readyState === OPEN ? this.socket : null;
  }

  private serveBy(socket: Socket): void {
    this.socket = socket;
    for (const sink of this.sinks.keys()) this.sinks.set(sink, socket);
  }

  /** What is answered behind a subscription was heard behind it. */
  private askWhatWasHeard(): void {
    const socket = this.openSocket;
    if (socket === null || this.unheard.size === 0) return;
    // graphql-ws sends a subscription some promises after it was asked to.
    setTimeout(() => {
      if (socket.readyState !== OPEN) return;
      this.questionsAsked += 1;
      this.questions.set(this.questionsAsked, [...this.unheard]);
      socket.send(JSON.stringify({ type: 'ping', payload: { heard: this.questionsAsked } }));
    });
  }

  private hear(question: number): void {
    const handles = this.questions.get(question) ?? [];
    this.questions.delete(question);
    for (const handle of handles) if (this.unheard.delete(handle)) handle();
  }
}

function bytesOf(message: object): number {
  return new TextEncoder().encode(JSON.stringify(message)).length;
}

function clear(timer: Timer): undefined {
  clearTimeout(timer);
}

/** A socket that was given up may still fail: nobody listens to it by then, and in Node that is thrown. */
function hardened(socketClass: unknown): unknown {
  if (typeof socketClass !== 'function') return socketClass;
  return class extends (socketClass as SocketClass) {
    constructor(url: string, protocols?: string | string[]) {
      super(url, protocols);
      this.addEventListener('error', () => {});
    }
  };
}
