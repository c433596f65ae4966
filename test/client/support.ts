// The client against a real server, through a network that can be cut; and a server that says what it is told.
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { WebSocket, WebSocketServer } from 'ws';
import { RunledgerClient, type ClientOptions } from '../../src/client/index.js';
import type { TestApp } from '../support/app.js';

/** Short waits, and the WebSocket that Node 20 lacks. */
export function makeClient(url: string, options: Partial<ClientOptions> = {}): RunledgerClient {
  return new RunledgerClient({
    url,
    webSocketImpl: WebSocket,
    firstWaitMs: 5,
    longestWaitMs: 50,
    ...options,
  });
}

/** Subscriptions that the server has under way. */
export async function subscriptionsAt(app: TestApp): Promise<number> {
  const response = await fetch(new URL('/metrics', app.url));
  return Number(/^runledger_subscriptions (\d+)$/m.exec(await response.text())?.[1]);
}

interface Asked {
  readonly id: string;
  readonly after: number;
}

/** Lets every client in and does with its subscriptions what the test wants; keeps what was asked. */
export class ScriptedServer {
  readonly asked: number[] = [];
  /** Types of the messages that came in. */
  readonly heard: string[] = [];
  onSubscribe: (socket: WebSocket, asked: Asked) => void = () => {};
  onPing: (socket: WebSocket, payload?: object) => void = () => {};

  private constructor(private readonly sockets: WebSocketServer) {
    sockets.on('connection', (socket) => {
      socket.on('message', (data) => this.hear(socket, JSON.parse(String(data)) as never));
    });
  }

  static async start(port = 0): Promise<ScriptedServer> {
    const sockets = new WebSocketServer({ port, host: '127.0.0.1' });
    await once(sockets, 'listening');
    return new ScriptedServer(sockets);
  }

  get url(): string {
    return `http://127.0.0.1:${(this.sockets.address() as AddressInfo).port}/graphql`;
  }

  get openSockets(): number {
    return this.sockets.clients.size;
  }

  static sendLines(socket: WebSocket, { id, after }: Asked, count: number, filler = ''): void {
    for (let seq = after + 1; seq <= after + count; seq += 1) {
      const payload = { data: { runEvents: { seq, message: `line ${seq}${filler}` } } };
      socket.send(JSON.stringify({ id, type: 'next', payload }));
    }
  }

  async stop(): Promise<void> {
    for (const socket of this.sockets.clients) socket.terminate();
    this.sockets.close();
    await once(this.sockets, 'close');
  }

  private hear(
    socket: WebSocket,
    message: { type: string; id: string; payload?: { variables: { after: number } } },
  ): void {
    this.heard.push(message.type);
    if (message.type === 'connection_init') socket.send('{"type":"connection_ack"}');
    if (message.type === 'ping') this.onPing(socket, message.payload as never);
    if (message.type !== 'subscribe') return;
    const { after } = message.payload!.variables;
    this.asked.push(after);
    this.onSubscribe(socket, { id: message.id, after });
  }
}
