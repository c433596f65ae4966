// The stand-in for a supplier's feed, as routes of the sandbox. The address says what it holds and how it
// misbehaves: /feed/<name>/graphql?size=500&faults=down:2@120. Owns, per name, what was changed by hand and
// how many pages were served; everything else is computed from the request.

import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { SandboxState } from '../state.js';
import { FeedApi } from './api.js';
import { isCallFault, parseFaults, type Fault } from './faults.js';
import { FeedRecords } from './records.js';
import { sendCsv, sendJsonPage, sendNdjson } from './downloads.js';
import { Stock, StockChanges } from './stock.js';

const OPTIONS = z.object({
  size: z.coerce.number().int().min(0).max(10_000_000).default(600),
  /** Every record changes once in so many seconds. */
  period: z.coerce.number().positive().max(1e7).optional(),
  faults: z.string().default(''),
});

export interface FeedOptions {
  readonly size?: number;
  readonly period?: number;
  readonly faults?: string;
}

/** One request's view of a feed. */
export interface FeedRequest {
  readonly name: string;
  readonly records: FeedRecords;
  readonly stock: Stock;
  readonly changes: StockChanges;
  readonly faults: readonly Fault[];
  /** Another one with every request. */
  readonly number: number;
}

interface FeedMemory {
  readonly changes: StockChanges;
  requests: number;
}

export class Feed {
  readonly #state: SandboxState;
  readonly #memories = new Map<string, FeedMemory>();
  #held = 0;

  constructor(state: SandboxState) {
    this.#state = state;
  }

  /** How many calls are left without an answer right now. */
  get held(): number {
    return this.#held;
  }

  changesOf(name: string): StockChanges {
    return this.#memoryOf(name).changes;
  }

  requestsOf(name: string): number {
    return this.#memoryOf(name).requests;
  }

  register(server: FastifyInstance): void {
    const api = new FeedApi((fault, key, reply) => this.#strike(fault, key, reply));
    server.post('/feed/:name/graphql', (request, reply) => {
      const feed = this.#open(request);
      return feed ? api.answer(feed, request, reply) : refuseOptions(reply);
    });
    const downloads = { items: sendJsonPage, 'items.ndjson': sendNdjson, 'items.csv': sendCsv };
    for (const [path, send] of Object.entries(downloads)) {
      server.get(`/feed/:name/${path}`, (request, reply) => {
        const feed = this.#open(request);
        return feed ? send(feed, request, reply) : refuseOptions(reply);
      });
    }
  }

  #open(request: FastifyRequest): FeedRequest | null {
    const { name } = request.params as { name: string };
    const parsed = OPTIONS.safeParse(request.query);
    const faults = parsed.success ? parseFaults(parsed.data.faults) : null;
    if (!parsed.success || !faults) return null;
    const { size, period } = parsed.data;
    const memory = this.#memoryOf(name);
    memory.requests += 1;
    const records = new FeedRecords(size, period === undefined ? null : period * 1000);
    const stock = new Stock(records, memory.changes, Date.now());
    return { name, records, stock, changes: memory.changes, faults, number: memory.requests };
  }

  #memoryOf(name: string): FeedMemory {
    let memory = this.#memories.get(name);
    if (!memory) {
      memory = { changes: new StockChanges(), requests: 0 };
      this.#memories.set(name, memory);
    }
    return memory;
  }

  /** Answers in the fault's way and says so, if the fault is (still) due. `key` is what it is counted by. */
  async #strike(fault: Fault, key: string, reply: FastifyReply): Promise<boolean> {
    if (!isCallFault(fault)) return false;
    if (fault.count !== null && (await this.#state.countFault(`${key} ${fault.name}`)) > fault.count) {
      return false;
    }
    switch (fault.name) {
      case 'down':
        await reply.code(503).send({ errors: 'HTTP 503' });
        return true;
      case 'throttle':
        await reply.code(429).header('retry-after', '1').send({ errors: 'HTTP 429' });
        return true;
      case 'deny':
        await reply.code(403).send({ errors: 'HTTP 403' });
        return true;
      case 'garble':
        await reply.type('text/html').send('<html><body>Under maintenance</body></html>');
        return true;
      case 'hang':
        this.#held += 1;
        reply.raw.once('close', () => (this.#held -= 1));
        reply.hijack();
        return true;
    }
  }
}

function refuseOptions(reply: FastifyReply): FastifyReply {
  return reply.code(400).send({ errors: 'size, period or faults cannot be understood' });
}
