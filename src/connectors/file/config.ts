// What a csv or an ndjson source needs to be told: a file on this machine, or an address to download it from.

import { z } from 'zod';
import { MAPPING_SETTINGS } from '../field-mapping.js';
import { GUARDED_URL, TIMEOUT_MS } from '../settings.js';

const FILE_SETTINGS = MAPPING_SETTINGS.extend({
  /** Within the directory that the server reads files from. */
  path: z.string().min(1).exactOptional(),
  url: GUARDED_URL.exactOptional(),
  headers: z.record(z.string(), z.string()).default({}),
  /** How long the file may give nothing. */
  callTimeoutMs: TIMEOUT_MS,
});

const ONE_PLACE = 'needs a path or a url, and not both';

function hasOnePlace({ path, url }: { path?: string; url?: string }): boolean {
  return (path === undefined) !== (url === undefined);
}

export const NDJSON_SETTINGS = FILE_SETTINGS.refine(hasOnePlace, ONE_PLACE);

export const CSV_SETTINGS = FILE_SETTINGS.extend({
  delimiter: z
    .string()
    .regex(/^[\x20-\x7e\t]$/, 'must be one character')
    .refine((character) => character !== '"', 'must not be the quote')
    .default(','),
}).refine(hasOnePlace, ONE_PLACE);

export type FileSettings = z.infer<typeof FILE_SETTINGS>;
