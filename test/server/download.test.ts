// Downloads over real HTTP: made as fast as they are read, ended when the client leaves, broken off when they
// fail half-way.
import { once } from 'node:events';
import { get, type ClientRequest, type IncomingMessage } from 'node:http';
import { setImmediate as tick } from 'node:timers/promises';
import { afterEach, expect, test } from 'vitest';
import type { Download } from '../../src/server/download.js';
import type { GraphqlServer } from '../../src/server/http.js';
import { until } from '../support/app.js';
import { startTestServer } from './support.js';

const CHUNK = 'x'.repeat(64 * 1024);

class EndlessFile implements Download {
  readonly path = '/export/endless.txt';
  readonly contentType = 'text/plain';
  readonly fileName = 'endless.txt';
  readonly parameters = ['fault'];
  chunks = 0;
  ended = false;

  async *read(_viewer: unknown, parameters: ReadonlyMap<string, string>): AsyncGenerator<string> {
    try {
      for (;;) {
        await tick();
        if (this.chunks === 3 && parameters.has('fault')) throw new Error('the database went away');
        this.chunks += 1;
        yield CHUNK;
      }
    } finally {
      this.ended = true;
    }
  }
}

let server: GraphqlServer;
afterEach(() => server.stop());

async function open(
  file: EndlessFile,
  query = '',
): Promise<{ request: ClientRequest; response: IncomingMessage }> {
  ({ server } = await startTestServer({ downloads: [file] }));
  const headers = { authorization: 'Bearer viewer' };
  const request = get({
    host: '127.0.0.1',
    port: server.port,
    path: `${file.path}${query}`,
    headers,
    agent: false,
  });
  request.on('error', () => {});
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  return { request, response };
}

test('a client that does not read is not read for, and one that leaves ends it', async () => {
  const file = new EndlessFile();
  const { request, response } = await open(file);
  response.pause();
  let last = -1;
  await until(
    async () => {
      const still = file.chunks === last;
      last = file.chunks;
      return still;
    },
    (still) => still && last > 0,
  );
  expect(file.ended).toBe(false);
  request.destroy();
  await until(
    async () => file.ended,
    (ended) => ended,
  );
});

test('a failure half-way is no end: the client sees the connection break', async () => {
  const { response } = await open(new EndlessFile(), '?fault=1');
  expect(response.statusCode).toBe(200);
  const reading = (async () => {
    for await (const _ of response);
  })();
  await expect(reading).rejects.toThrow(/aborted|terminated|reset/i);
});
