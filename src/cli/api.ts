// The server as the commands call it: GraphQL over HTTP. Tells what passes by itself (nobody there, an
// overloaded or stopping server) from what does not (refused, not let in).

import type { Option } from './command.js';
import { UsageError, type Arguments } from './command.js';

export const CONNECTION_OPTIONS: Readonly<Record<'url' | 'key', Option>> = {
  url: { type: 'string', value: 'URL', help: 'the server; or RUNLEDGER_URL (http://127.0.0.1:4000)' },
  key: {
    type: 'string',
    value: 'KEY',
    help: 'the API key; better in RUNLEDGER_API_KEY, where ps does not show it',
  },
};

const PATH = '/graphql';
const TIMEOUT_MS = 30_000;
const PASSING = new Set(['UNAVAILABLE', 'RATE_LIMITED', 'INTERNAL']);

export interface UserError {
  readonly code: string;
  readonly message: string;
  readonly details: Readonly<Record<string, unknown>> | null;
}

/** Why a call came to nothing. */
export class ApiFault extends Error {
  constructor(
    /** UNREACHABLE, or the server's own code. */
    readonly code: string,
    message: string,
    readonly details: Readonly<Record<string, unknown>> | null = null,
    /** The server understood, and said no. */
    readonly isRefusal = false,
  ) {
    super(message);
  }

  /** The same call may go through later. */
  get isPassing(): boolean {
    return this.code === 'UNREACHABLE' || PASSING.has(this.code);
  }
}

interface Answer<Data> {
  readonly data?: Data | null;
  readonly errors?: readonly { readonly message: string; readonly extensions?: { readonly code?: string } }[];
}

export class Api {
  constructor(
    readonly url: URL,
    readonly key: string | null,
  ) {}

  static of(args: Arguments, env: NodeJS.ProcessEnv): Api {
    const given = args.text('url') ?? (env['RUNLEDGER_URL'] || 'http://127.0.0.1:4000');
    if (!URL.canParse(given) || !/^https?:$/.test(new URL(given).protocol)) {
      throw new UsageError(`--url must be an http or https URL, not ${JSON.stringify(given)}`);
    }
    const url = new URL(given);
    if (url.pathname === '/') url.pathname = PATH;
    return new Api(url, args.text('key') ?? (env['RUNLEDGER_API_KEY'] || null));
  }

  get authorization(): string | null {
    return this.key === null ? null : `Bearer ${this.key}`;
  }

  /** The data of an operation. */
  async ask<Data>(query: string, variables: object): Promise<Data> {
    const { data, errors } = await this.post<Data>(JSON.stringify({ query, variables }));
    const first = errors?.[0];
    if (first) throw new ApiFault(first.extensions?.code ?? 'INTERNAL', first.message);
    if (!data) throw new ApiFault('INTERNAL', 'The server answered without data.');
    return data;
  }

  /** The payload of a mutation; what it refuses is thrown. */
  async mutate<Payload extends object>(name: string, query: string, input: object): Promise<Payload> {
    const data = await this.ask<Record<string, Payload & { userErrors: readonly UserError[] }>>(query, {
      input,
    });
    const payload = data[name]!;
    const [refusal] = payload.userErrors;
    if (refusal) throw new ApiFault(refusal.code, refusal.message, refusal.details, true);
    return payload;
  }

  private async post<Data>(body: string): Promise<Answer<Data>> {
    const { authorization } = this;
    try {
      const response = await fetch(this.url, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...(authorization === null ? {} : { authorization }) },
        body,
        signal: AbortSignal.timeout(TIMEOUT_MS),
      });
      return await readAnswer<Data>(response);
    } catch (error) {
      if (error instanceof ApiFault) throw error;
      throw new ApiFault('UNREACHABLE', `${this.url.href} cannot be reached: ${reasonOf(error)}`);
    }
  }
}

async function readAnswer<Data>(response: Response): Promise<Answer<Data>> {
  const text = await response.text();
  try {
    return JSON.parse(text) as Answer<Data>;
  } catch {
    // A proxy in between, or no Runledger at all.
    const code = response.status >= 500 || response.status === 429 ? 'UNREACHABLE' : 'NOT_RUNLEDGER';
    throw new ApiFault(code, `${response.url} answered ${response.status} and not as Runledger does.`);
  }
}

/** fetch hides the reason in the cause, and a refused connection in an AggregateError's code. */
function reasonOf(error: unknown): string {
  const { cause, message } = error as { cause?: { message?: string; code?: string }; message?: string };
  return cause?.message || cause?.code || message || String(error);
}
