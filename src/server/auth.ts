// Reads who claims to be calling, from an HTTP request or a WebSocket's connection_init. Owns the rule for
// what counts as a local caller. It decides nothing: the application's `authenticate` turns credentials
// into a viewer or refuses. Called by http and websocket.

import type { IncomingHttpHeaders } from 'node:http';
import { AppError } from '../errors.js';

export interface Credentials {
  /** The API key as the caller sent it, or null when none was sent. */
  readonly token: string | null;
  /** The call comes from this machine and was not relayed by a foreign web page or a proxy. */
  readonly local: boolean;
}

/** What is known of the connection; an IncomingMessage gives both. */
export interface Caller {
  readonly remoteAddress: string | undefined;
  readonly headers: IncomingHttpHeaders;
}

const LOOPBACK_NAMES = new Set(['127.0.0.1', 'localhost', '[::1]']);
const LOOPBACK_ADDRESS = /^(?:::1|(?:::ffff:)?127(?:\.\d{1,3}){3})$/i;
const BEARER = /^Bearer +([\x21-\x7e]{1,512})$/i;
const BEARER_OR_BARE = /^(?:Bearer +)?([\x21-\x7e]{1,512})$/i;

export function credentialsFromRequest(caller: Caller): Credentials {
  const header = caller.headers.authorization;
  const token = header === undefined ? null : readToken(header, BEARER, 'The Authorization header');
  return { token, local: isLocal(caller) };
}

/** Browsers cannot set headers on a WebSocket, so the key travels in `connectionParams.authorization`. */
export function credentialsFromConnection(
  caller: Caller,
  params: Readonly<Record<string, unknown>> | undefined,
): Credentials {
  const name = Object.keys(params ?? {}).find((key) => key.toLowerCase() === 'authorization');
  const value = name === undefined ? undefined : params?.[name];
  if (value === undefined || value === null) return { token: null, local: isLocal(caller) };
  return {
    token: readToken(value, BEARER_OR_BARE, 'connectionParams.authorization'),
    local: isLocal(caller),
  };
}

function readToken(value: unknown, form: RegExp, where: string): string {
  const token = typeof value === 'string' ? form.exec(value.trim())?.[1] : undefined;
  if (token === undefined) throw new AppError('UNAUTHENTICATED', `${where} must read "Bearer <API key>".`);
  return token;
}

/**
 * The address alone does not prove a local caller: a browser on this machine can be led here by a foreign
 * page, through DNS rebinding (the Host gives it away) or a cross-site WebSocket (the Origin does), and a
 * proxy on this machine speaks for the whole network (its forwarding headers give it away).
 */
function isLocal({ remoteAddress, headers }: Caller): boolean {
  if (remoteAddress === undefined || !LOOPBACK_ADDRESS.test(remoteAddress)) return false;
  if (headers['x-forwarded-for'] !== undefined || headers.forwarded !== undefined) return false;
  if (!isLoopbackUrl(`http://${headers.host ?? ''}`)) return false;
  return headers.origin === undefined || isLoopbackUrl(headers.origin);
}

function isLoopbackUrl(text: string): boolean {
  const url = URL.canParse(text) ? new URL(text) : null;
  return url !== null && url.username === '' && LOOPBACK_NAMES.has(url.hostname);
}
