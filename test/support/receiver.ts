// A stand-in for whoever is posted to: a real HTTP server that keeps what it is sent and answers as told.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { once } from 'node:events';

export interface Received {
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly text: string;
  // Tests read what they expect.
  // eslint-disable-next-line @typescript-eslint/no-explicit-any
  readonly body: any;
}

/** A status to answer with, or `hang` for no answer at all. */
export type Answer = number | 'hang';

export class Receiver {
  readonly received: Received[] = [];
  /** What to answer, by path; 200 where nothing is said. */
  readonly answers = new Map<string, Answer>();
  readonly #server = createServer((request, response) => void this.#take(request, response));

  static async start(): Promise<Receiver> {
    const receiver = new Receiver();
    receiver.#server.listen(0, '127.0.0.1');
    await once(receiver.#server, 'listening');
    return receiver;
  }

  url(path: string): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}${path}`;
  }

  /** What came to a path, in order. */
  at(path: string): Received[] {
    return this.received.filter((each) => each.path === path);
  }

  /** The next thing to come in, whatever it is. */
  async next(): Promise<Received> {
    await once(this.#server, 'received');
    return this.received.at(-1)!;
  }

  async stop(): Promise<void> {
    if (!this.#server.listening) return;
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  async #take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    const text = Buffer.concat(parts).toString('utf8');
    const path = request.url ?? '';
    this.received.push({ path, headers: request.headers, text, body: text === '' ? null : JSON.parse(text) });
    this.#server.emit('received');
    const answer = this.answers.get(path) ?? 200;
    if (answer === 'hang') return;
    response.writeHead(answer, { location: '/elsewhere' }).end('noted');
  }
}
