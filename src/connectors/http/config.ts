// What an http channel needs to be told: how to write prices, how to read them, and what the answers mean.
// Owns which placeholders may stand where. Credentials are named values; templates refer to them as
// `{{credentials.name}}`, so that nothing else in the settings is secret.

import { z } from 'zod';
import { isStorable } from '../../domain/text.js';
import { GUARDED_URL, TIMEOUT_MS } from '../settings.js';
import { isPointer } from './json-pointer.js';
import { CREDENTIAL_PREFIX, type Contradiction } from './plain-secrets.js';
import { findPlaceholders } from './template.js';

const ITEM_FIELDS = ['externalId', 'unitAmount', 'decimal', 'decimalNumber', 'currency', 'idempotencyKey'];
const BATCH_FIELDS = ['idempotencyKey'];
const READ_FIELDS = ['externalId', 'externalIds', 'currency'];

/** Set by fetch or by the connector itself. */
const RESERVED_HEADERS =
  /^(host|connection|content-length|transfer-encoding|upgrade|keep-alive|te|trailer|expect)$/i;

const POINTER = z.string().refine(isPointer, 'must be a JSON pointer such as /result/ok');
const HEADER_NAME = z
  .string()
  .regex(/^[\w!#$%&'*+.^`|~-]{1,100}$/, 'must be the name of a header')
  .refine((name) => !RESERVED_HEADERS.test(name), 'is not for a channel to set');
const HEADERS = z.record(
  HEADER_NAME,
  z
    .string()
    .max(8_192)
    .regex(/^[\t\x20-\x7e\x80-\xff]*$/),
);
const URL_TEMPLATE = GUARDED_URL.refine(hasFixedOrigin, 'must name its host without placeholders');
const FAILURE_CODE = z.enum(['RATE_LIMITED', 'TIMEOUT', 'AUTH', 'INVALID', 'CONFLICT', 'UPSTREAM']);

/** What the body of an answer says of a call, or of one item of it. */
const ANSWER = z.strictObject({
  /** Where the answers for the items of a batch stand. */
  items: POINTER.exactOptional(),
  /** In one of these: whose it is. Without it, they stand in the order of the items sent. */
  id: POINTER.exactOptional(),
  /** Applied when the value is one of these. */
  ok: z
    .strictObject({ at: POINTER, is: z.array(z.union([z.string(), z.number(), z.boolean()])).min(1) })
    .exactOptional(),
  error: POINTER.exactOptional(),
  code: z.strictObject({ at: POINTER, means: z.record(z.string(), FAILURE_CODE) }).exactOptional(),
  /** Seconds; what has them may be tried again. */
  retryAfter: POINTER.exactOptional(),
});

const WRITE = z.strictObject({
  url: URL_TEMPLATE,
  method: z.enum(['POST', 'PUT', 'PATCH']).default('POST'),
  headers: HEADERS.default({}),
  body: z.json(),
  /** Several items in one call: `{{items}}` in the body becomes the list of `item`, one for each. */
  batch: z.strictObject({ max: z.int().min(2).max(1_000), item: z.json() }).exactOptional(),
  answer: ANSWER.exactOptional(),
});

const READ = z.strictObject({
  url: URL_TEMPLATE,
  method: z.enum(['GET', 'POST']).default('GET'),
  headers: HEADERS.default({}),
  body: z.json().exactOptional(),
  /** Ids per call; one where the template says `{{externalId}}`. */
  max: z.int().min(1).max(1_000).default(100),
  answer: z.strictObject({
    /** Where the list of prices stands; without it the answer is one price. */
    items: POINTER.exactOptional(),
    id: POINTER.exactOptional(),
    amount: POINTER,
    unit: z.enum(['minor', 'decimal']),
  }),
});

const CREDENTIAL = z.string().min(1).max(8_192).refine(isStorable, 'has a character that is none');
const SIGNATURE = z.strictObject({ header: HEADER_NAME, credential: z.string() });

export type AnswerSettings = z.infer<typeof ANSWER>;
export type ReadSettings = z.infer<typeof READ>;

export const HTTP_SETTINGS = z
  .strictObject({
    write: WRITE,
    read: READ,
    credentials: z.record(z.string().regex(/^[\w-]{1,100}$/), CREDENTIAL).default({}),
    idempotencyHeader: HEADER_NAME.default('Idempotency-Key'),
    signature: SIGNATURE.exactOptional(),
    callTimeoutMs: TIMEOUT_MS,
    maxAnswerBytes: z
      .int()
      .min(1_024)
      .max(64 * 1024 * 1024)
      .default(1024 * 1024),
  })
  .superRefine((settings, context) => {
    for (const { field, message } of findContradictions(settings)) {
      context.addIssue({ code: 'custom', path: [...field], message });
    }
  });

export type HttpConfig = z.infer<typeof HTTP_SETTINGS>;

function* findContradictions(settings: HttpConfig): Generator<Contradiction> {
  const { write, read, credentials, signature } = settings;
  const secrets = Object.keys(credentials).map((name) => `${CREDENTIAL_PREFIX}${name}`);
  const [callFields, bodyFields] = write.batch
    ? [BATCH_FIELDS, ['items', ...BATCH_FIELDS]]
    : [ITEM_FIELDS, ITEM_FIELDS];
  yield* findStrangers(['write', 'url'], write.url, [...(write.batch ? [] : ITEM_FIELDS), ...secrets]);
  yield* findStrangers(['write', 'headers'], write.headers, [...callFields, ...secrets]);
  yield* findStrangers(['write', 'body'], write.body, [...bodyFields, ...secrets]);
  yield* findStrangers(['write', 'batch', 'item'], write.batch?.item, ITEM_FIELDS);
  yield* findStrangers(['read', 'url'], read.url, [...READ_FIELDS, ...secrets]);
  yield* findStrangers(['read', 'headers'], read.headers, secrets);
  yield* findStrangers(['read', 'body'], read.body, [...READ_FIELDS, ...secrets]);
  yield* findMissingParts(settings);
  if (signature && !Object.hasOwn(credentials, signature.credential)) {
    yield { field: ['signature', 'credential'], message: 'must be the name of one of the credentials' };
  }
}

function* findStrangers(
  field: readonly string[],
  template: unknown,
  known: readonly string[],
): Generator<Contradiction> {
  const strangers = [...findPlaceholders(template)].filter((name) => !known.includes(name));
  if (strangers.length === 0) return;
  const choice = known.length === 0 ? 'there are none here' : `there are ${known.join(', ')}`;
  yield { field, message: `no such placeholder: ${strangers.join(', ')} (${choice})` };
}

function* findMissingParts({ write, read }: HttpConfig): Generator<Contradiction> {
  const { batch, answer } = write;
  if (batch && !findPlaceholders(write.body).has('items')) {
    yield { field: ['write', 'body'], message: 'must say {{items}} where the items of a batch go' };
  }
  if (!batch && answer?.items !== undefined) {
    yield {
      field: ['write', 'answer', 'items'],
      message: 'is for a batch: a call with one item has one answer',
    };
  }
  if (answer?.id !== undefined && answer.items === undefined) {
    yield { field: ['write', 'answer', 'id'], message: 'needs items, the list it is looked for in' };
  }
  if (read.answer.id !== undefined && read.answer.items === undefined) {
    yield { field: ['read', 'answer', 'id'], message: 'needs items, the list it is looked for in' };
  }
  if (read.method === 'GET' && read.body !== undefined) {
    yield { field: ['read', 'body'], message: 'cannot go with GET' };
  }
  const asked = new Set([...findPlaceholders(read.url), ...findPlaceholders(read.body)]);
  const single = asked.has('externalId');
  if (single === asked.has('externalIds')) {
    yield {
      field: ['read', 'url'],
      message: 'must ask for either {{externalId}} or {{externalIds}}, in the URL or the body',
    };
  } else if (!single && read.answer.items === undefined) {
    yield { field: ['read', 'answer', 'items'], message: 'must say where the list of prices stands' };
  }
}

function hasFixedOrigin(template: string): boolean {
  return /^https?:\/\/[^/?#{}]+(?:[/?#]|$)/i.test(template);
}
