// What an http-json source needs to be told: where its pages are, how to ask for the next one, and where in
// the answer the records are.

import { z } from 'zod';
import { MAPPING_SETTINGS } from '../field-mapping.js';
import { GUARDED_URL, TIMEOUT_MS } from '../settings.js';

const PARAMETER = z.string().min(1);

export const HTTP_JSON_SETTINGS = MAPPING_SETTINGS.extend({
  url: GUARDED_URL,
  headers: z.record(z.string(), z.string()).default({}),
  paging: z
    .discriminatedUnion('kind', [
      z.strictObject({
        kind: z.literal('offset'),
        offset: PARAMETER.default('offset'),
        limit: PARAMETER.default('limit'),
      }),
      z.strictObject({
        kind: z.literal('cursor'),
        cursor: PARAMETER.default('cursor'),
        limit: PARAMETER.default('limit'),
        /** Where the answer has the cursor of the next page. */
        next: z.string().default('next'),
      }),
    ])
    .prefault({ kind: 'offset' }),
  /** The parameter that narrows to what changed; without one, everything is read and old records are passed over. */
  since: PARAMETER.exactOptional(),
  /** Where the answer has its records; empty: the answer is the list. */
  items: z.string().default('items'),
  /** Where it has their number, over all pages; without it the feed is one partition. */
  total: z.string().exactOptional(),
  callTimeoutMs: TIMEOUT_MS,
});

export type HttpJsonSettings = z.infer<typeof HTTP_JSON_SETTINGS>;
