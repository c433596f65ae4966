// What the tests of all connectors share: price changes, the outcomes of a whole iteration, and a server over
// real HTTP whose every answer the test writes itself.

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import type { Channel, Outcome, PriceChange } from '../../src/connectors/channel.js';

export const NEVER = new AbortController().signal;

export function change(externalId: string, unitAmount = 1999, currency = 'EUR'): PriceChange {
  return { idempotencyKey: `key:${externalId}`, externalId, unitAmount, currency };
}

export function changes(count: number, prefix = 'SKU'): PriceChange[] {
  return Array.from({ length: count }, (_, i) => change(`${prefix}-${i}`, 100 + i));
}

/** Every outcome by external id; throws when an item gets a second one. */
export async function applyAll(
  channel: Channel,
  batch: readonly PriceChange[],
  signal: AbortSignal = NEVER,
): Promise<Map<string, Outcome>> {
  const seen = new Map<string, Outcome>();
  for await (const outcomes of channel.applyPrices(batch, signal)) {
    for (const { externalId, outcome } of outcomes) {
      if (seen.has(externalId)) throw new Error(`second outcome for ${externalId}`);
      seen.set(externalId, outcome);
    }
  }
  return seen;
}

export interface Call {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

export interface ScriptedReply {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** Sent as JSON, or as it is when it is a string. */
  readonly body?: unknown;
}

type Script = (call: Call, reply: ServerResponse) => ScriptedReply | Promise<ScriptedReply>;

/** Answers each call as the test's script says. */
export class ScriptedServer {
  readonly calls: Call[] = [];
  readonly #server: Server;
  readonly #script: Script;

  constructor(script: Script) {
    this.#script = script;
    this.#server = createServer((request, reply) => void this.#answer(request, reply));
  }

  static async start(script: Script): Promise<ScriptedServer> {
    const server = new ScriptedServer(script);
    await server.listen();
    return server;
  }

  async listen(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
  }

  get origin(): string {
    const { port } = this.#server.address() as AddressInfo;
    return `http://127.0.0.1:${port}`;
  }

  async stop(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    await closed;
  }

  async #answer(request: IncomingMessage, reply: ServerResponse): Promise<void> {
    const { method = '', url = '', headers } = request;
    const call: Call = { method, path: url, headers, body: await text(request) };
    this.calls.push(call);
    const { status = 200, headers: own = {}, body = {} } = await this.#script(call, reply);
    reply.writeHead(status, { 'content-type': 'application/json', ...own });
    reply.end(typeof body === 'string' ? body : JSON.stringify(body));
  }
}
