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

/**
 * A status to answer with, `hang` for no answer at all, `trickle` for a 200 whose body does not end, or `echo` for a
 * 500 that repeats what was sent.
 */
export type Answer = number | 'hang' | 'trickle' | 'echo';

export class Receiver {
  readonly received: Received[] = [];
  /** What to answer, by path; 200 where nothing is said. */
  readonly answers = new Map<string, Answer>();
  /** Sent with every answer. */
  headers: Readonly<Record<string, string>> = {};
  /** Answers 422 to what it is true of. */
  refuse: (received: Received) => boolean = () => false;
  /** What hangs. */
  readonly #hanging: ServerResponse[] = [];
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

  /** Answers all that hangs. */
  release(status = 200): void {
    for (const response of this.#hanging.splice(0)) response.writeHead(status).end();
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
    const received = { path, headers: request.headers, text, body: text === '' ? null : JSON.parse(text) };
    this.received.push(received);
    this.#server.emit('received');
    const answer = this.refuse(received) ? 422 : (this.answers.get(path) ?? 200);
    if (answer === 'hang') return void this.#hanging.push(response);
    if (answer === 'trickle') response.writeHead(200).write('not');
    else if (answer === 'echo') response.writeHead(500).end(text);
    else response.writeHead(answer, { location: '/elsewhere', ...this.headers }).end('noted');
  }
}
