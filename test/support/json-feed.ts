// A supplier of plain JSON whose every answer a test can script: records in a list, paged by offset and limit.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface JsonRecord {
  readonly id: unknown;
  readonly price?: string;
  readonly [name: string]: unknown;
}

export interface PageAsked {
  readonly offset: number;
  readonly limit: number;
  readonly cursor: string | null;
}

/** Answers null to leave the answer to the list, and 'held' to give it later. */
type Script = (page: PageAsked, response: ServerResponse) => object | 'held' | null;

export class JsonFeed {
  records: JsonRecord[];
  /** Looked at before every answer. */
  script: Script = () => null;
  /** The pages that were asked for, in that order. */
  readonly asked: PageAsked[] = [];
  readonly #server: Server;

  static async start(records: JsonRecord[]): Promise<JsonFeed> {
    const feed = new JsonFeed(records);
    await new Promise<void>((done) => feed.#server.listen(0, '127.0.0.1', done));
    return feed;
  }

  private constructor(records: JsonRecord[]) {
    this.records = records;
    this.#server = createServer((request, response) => this.#answer(request, response));
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/`;
  }

  /** What an http-json source needs to be told. */
  config(overrides: object = {}): object {
    return { url: this.url, defaultCurrency: 'EUR', ...overrides };
  }

  stop(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const query = new URL(request.url!, 'http://localhost').searchParams;
    const [offset, limit] = [Number(query.get('offset') ?? 0), Number(query.get('limit'))];
    const page = { offset, limit, cursor: query.get('cursor') };
    this.asked.push(page);
    const answer = this.script(page, response) ?? {
      items: this.records.slice(offset, offset + limit),
      total: this.records.length,
    };
    if (answer !== 'held' && !response.writableEnded) response.end(JSON.stringify(answer));
  }
}

/** Records r0, r1, … */
export function recordsOf(count: number, from = 0): JsonRecord[] {
  return Array.from({ length: count }, (_, index) => recordOf(from + index));
}

export function recordOf(number: number): JsonRecord {
  return { id: `r${number}`, title: `Record ${number}`, price: '1.00' };
}
