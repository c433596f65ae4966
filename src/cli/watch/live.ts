// Subscriptions that outlive their connection: when it is lost, they are taken up again where they were.

import { createClient, type Client } from 'graphql-ws';
import { WebSocket } from 'ws';
import { ApiFault, type Api } from '../api.js';
import { persist } from '../patience.js';

export class LiveConnection {
  private readonly client: Client;

  constructor(
    api: Api,
    private readonly signal: AbortSignal,
    private readonly onWait: (fault: ApiFault) => void,
  ) {
    const { authorization } = api;
    this.client = createClient({
      url: api.webSocketUrl,
      webSocketImpl: WebSocket,
      // Its own retries would ask again from the beginning.
      retryAttempts: 0,
      connectionParams: authorization === null ? {} : { authorization },
    });
  }

  /** Calls `take` with each result until it answers true. `variables` is asked again for each new connection. */
  async follow<Data>(
    query: string,
    variables: () => Record<string, unknown>,
    take: (data: Data) => boolean,
  ): Promise<void> {
    await persist(
      async () => {
        try {
          for await (const { data, errors } of this.client.iterate<Data>({ query, variables: variables() })) {
            const fault = errors?.[0];
            if (fault) throw new ApiFault(String(fault.extensions?.['code'] ?? 'INTERNAL'), fault.message);
            if (data && take(data)) return;
          }
        } catch (error) {
          throw toFault(error);
        }
        throw new ApiFault('UNREACHABLE', 'The server ended the subscription');
      },
      this.signal,
      this.onWait,
    );
  }

  async close(): Promise<void> {
    await this.client.dispose();
  }
}

/** Close codes of graphql-ws that say: not with this key. */
const NOT_LET_IN = [4400, 4401, 4403];

function toFault(error: unknown): ApiFault {
  if (error instanceof ApiFault) return error;
  if (Array.isArray(error)) {
    const [first] = error as { message: string; extensions?: { code?: string } }[];
    return new ApiFault(
      first?.extensions?.code ?? 'INTERNAL',
      first?.message ?? 'The subscription was refused.',
    );
  }
  const { code, reason, message } = error as { code?: number; reason?: string; message?: string };
  const why = reason || message || 'the connection was lost';
  return new ApiFault(NOT_LET_IN.includes(code ?? 0) ? 'FORBIDDEN' : 'UNREACHABLE', `The server: ${why}`);
}
