// Files over HTTP. A download is made while it is read: nothing is read ahead of the client, and a client that
// goes away ends it. One that fails half-way breaks the connection, so that it is never taken for whole.

import { Readable } from 'node:stream';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { isAllowed, type Viewer } from '../domain/viewer.js';
import { AppError } from '../errors.js';

export interface Download {
  readonly path: string;
  readonly contentType: string;
  readonly fileName: string;
  /** Names of the parameters that its query string may have. */
  readonly parameters: readonly string[];
  read(viewer: Viewer, parameters: ReadonlyMap<string, string>): AsyncIterable<string>;
}

/** Knows who is asking, or refuses. */
export type Identify = (request: FastifyRequest, reply: FastifyReply) => Promise<Viewer>;

export function addDownload(http: FastifyInstance, download: Download, identify: Identify): void {
  http.get(download.path, async (request, reply) => {
    const viewer = await identify(request, reply);
    if (!isAllowed(viewer.role, 'READ')) {
      throw new AppError('FORBIDDEN', `A key with the role ${viewer.role} may not use ${download.path}.`);
    }
    const parameters = readParameters(
      request.query as Readonly<Record<string, unknown>>,
      download.parameters,
    );
    void reply.headers({
      'content-type': download.contentType,
      'content-disposition': `attachment; filename="${download.fileName}"`,
      'cache-control': 'no-store',
    });
    return reply.send(Readable.from(download.read(viewer, parameters)));
  });
}

function readParameters(
  query: Readonly<Record<string, unknown>>,
  known: readonly string[],
): ReadonlyMap<string, string> {
  const parameters = new Map<string, string>();
  for (const [name, value] of Object.entries(query)) {
    if (!known.includes(name)) {
      throw new AppError('BAD_USER_INPUT', `There is no parameter ${name}; there are ${known.join(', ')}.`);
    }
    if (typeof value !== 'string') throw new AppError('BAD_USER_INPUT', `${name} must be given once.`);
    if (value.includes('\0'))
      throw new AppError('BAD_USER_INPUT', `${name} must not contain a NUL character.`);
    // An empty one is one that was left out.
    if (value !== '') parameters.set(name, value);
  }
  return parameters;
}
