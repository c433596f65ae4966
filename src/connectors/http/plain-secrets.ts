// Secrets that were written where everybody who may see a channel reads them: in a header, a query or a body,
// instead of under `credentials`. Pure. Told by the name that they stand under, and never with the value. A guess:
// where it is in doubt the setting is taken, since nobody could do without what is refused.

import { findPlaceholders } from './template.js';

/** Before the name of a credential, in a placeholder. */
export const CREDENTIAL_PREFIX = 'credentials.';

export interface Contradiction {
  readonly field: readonly string[];
  readonly message: string;
}

interface CallTemplate {
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly body?: unknown;
}

interface Calls {
  readonly write: CallTemplate & { readonly batch?: { readonly item: unknown } | undefined };
  readonly read: CallTemplate;
}

const CREDENTIAL_HEADERS = /^(proxy-)?authorization$|^cookie$/i;

/** Of a name as words with dashes between them: at its end, or the whole of it. */
const CREDENTIAL_NAMES =
  /(^|-)((api|access|secret|private|auth|subscription)-?key|(api|access|auth|bearer|refresh)-?token|secret|passw(or)?d|pwd)$|^(x-)?token$/;

/** Names of much else besides: then it takes a value that looks like a credential. */
const AMBIGUOUS_NAMES = /^key$|^sig$|(^|-)(signature|token)$/;
const CREDENTIAL_LIKE = /^(?=.*\d)(?=.*[a-z])\S{16,}$/i;

const INSTEAD = 'put it under credentials and write {{credentials.<name>}} here';
const INSTEAD_IN_ITEM = 'put it under credentials and write {{credentials.<name>}} in a header or the body';

export function* findPlainSecrets({ write, read }: Calls): Generator<Contradiction> {
  yield* findInCall(['write'], write);
  yield* findInBody(['write', 'batch', 'item'], write.batch?.item, INSTEAD_IN_ITEM);
  yield* findInCall(['read'], read);
}

function* findInCall(
  at: readonly string[],
  { url, headers = {}, body }: CallTemplate,
): Generator<Contradiction> {
  for (const [name, value] of Object.entries(headers)) {
    const isPlain = CREDENTIAL_HEADERS.test(name) ? !refersToCredential(value) : isSecret(name, value);
    if (isPlain && value !== '') {
      yield { field: [...at, 'headers', name], message: `carries a credential: ${INSTEAD}` };
    }
  }
  for (const [name, value] of new URL(url).searchParams) {
    if (isSecret(name, value)) {
      yield { field: [...at, 'url'], message: `carries a credential, in ${name}, ${INSTEAD}` };
    }
  }
  yield* findInBody([...at, 'body'], body, INSTEAD);
}

function* findInBody(field: readonly string[], value: unknown, instead: string): Generator<Contradiction> {
  if (typeof value !== 'object' || value === null) return;
  for (const [name, inner] of Object.entries(value)) {
    const here = [...field, name];
    if (typeof inner === 'string' && isSecret(name, inner)) {
      yield { field: here, message: `carries a credential: ${instead}` };
    }
    yield* findInBody(here, inner, instead);
  }
}

function isSecret(name: string, value: string): boolean {
  if (value === '' || findPlaceholders(value).size > 0) return false;
  const words = name.replace(/([a-z\d])([A-Z])/g, '$1-$2').replace(/[^a-z\d]+/gi, '-');
  const plain = words.toLowerCase();
  return CREDENTIAL_NAMES.test(plain) || (AMBIGUOUS_NAMES.test(plain) && CREDENTIAL_LIKE.test(value));
}

function refersToCredential(value: string): boolean {
  return [...findPlaceholders(value)].some((name) => name.startsWith(CREDENTIAL_PREFIX));
}
