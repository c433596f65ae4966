// The kinds of source there are. Owns the shape of a source's config: the connector's own settings, and
// beside them one reserved key, `policy`. Used by the runner to open a source, and before a config is saved.

import { relative, resolve, sep } from 'node:path';
import type { z } from 'zod';
import { CSV_SETTINGS, NDJSON_SETTINGS, type FileSettings } from './file/config.js';
import { FileSource } from './file/file-source.js';
import { csvFormat, NDJSON, type Format } from './file/format.js';
import { HTTP_JSON_SETTINGS } from './http-json/config.js';
import { HttpJsonSource } from './http-json/http-json-source.js';
import { NIVODA_SETTINGS } from './nivoda/config.js';
import { NivodaSource } from './nivoda/nivoda-source.js';
import { findFaults, unsound } from './settings.js';
import { mergeSourcePolicy, SOURCE_POLICY_SETTINGS, type SourcePolicy } from './source-policy.js';
import type { Source } from './source.js';

/** What a config need not say. */
export interface SourceDefaults extends Pick<SourcePolicy, 'retry'> {
  readonly callTimeoutMs: number;
  /** Files are read from here and from nowhere else; null: none are. */
  readonly filesDir: string | null;
}

export interface OpenedSource {
  readonly source: Source;
  readonly policy: SourcePolicy;
}

type Open<Settings> = (settings: Settings, policy: SourcePolicy, defaults: SourceDefaults) => Source;

interface Kind {
  /** The names of the settings that hold credentials. */
  readonly secrets: readonly string[];
  readonly settings: z.ZodType;
  readonly open: Open<unknown>;
}

const KINDS: Readonly<Record<string, Kind>> = {
  csv: kind(['headers'], CSV_SETTINGS, ({ delimiter, ...settings }, policy, defaults) =>
    openFile(settings, csvFormat(delimiter), policy, defaults),
  ),
  'http-json': kind(
    ['headers'],
    HTTP_JSON_SETTINGS,
    (settings, policy) => new HttpJsonSource(settings, policy),
  ),
  ndjson: kind(['headers'], NDJSON_SETTINGS, (settings, policy, defaults) =>
    openFile(settings, NDJSON, policy, defaults),
  ),
  nivoda: kind(['password'], NIVODA_SETTINGS, (settings, policy) => new NivodaSource(settings, policy)),
};

export const SOURCE_KINDS: readonly string[] = Object.keys(KINDS);

/** Null when there is no such kind. */
export function secretsOfSource(kindName: string): readonly string[] | null {
  return findKind(kindName)?.secrets ?? null;
}

function findKind(kindName: string): Kind | undefined {
  return Object.hasOwn(KINDS, kindName) ? KINDS[kindName] : undefined;
}

/** Throws INVALID_INPUT that names every fault of the kind, the settings and the policy. */
export function openSource(kindName: string, config: unknown, defaults: SourceDefaults): OpenedSource {
  const found = findKind(kindName);
  if (!found) throw unsound('source', [{ field: ['kind'], message: `is one of ${SOURCE_KINDS.join(', ')}` }]);
  if (typeof config !== 'object' || config === null || Array.isArray(config)) {
    throw unsound('source', [{ field: [], message: 'must be an object' }]);
  }
  const { policy: figures = {}, ...given } = config as Readonly<Record<string, unknown>>;
  const settings = found.settings.safeParse({ callTimeoutMs: defaults.callTimeoutMs, ...given });
  const parsed = SOURCE_POLICY_SETTINGS.safeParse(figures);
  if (!settings.success || !parsed.success) {
    const faults = [...findFaults(settings.error), ...findFaults(parsed.error, 'policy')];
    throw unsound(`${kindName} source`, faults);
  }
  const policy = mergeSourcePolicy(parsed.data, defaults);
  return { source: found.open(settings.data, policy, defaults), policy };
}

function kind<Settings>(
  secrets: readonly string[],
  settings: z.ZodType<Settings>,
  open: Open<Settings>,
): Kind {
  return { secrets, settings, open: open as Open<unknown> };
}

function openFile(
  { path, ...settings }: FileSettings,
  format: Format,
  policy: SourcePolicy,
  { filesDir }: SourceDefaults,
): Source {
  if (path === undefined) return new FileSource(settings, format, policy);
  return new FileSource({ ...settings, path: locate(filesDir, path) }, format, policy);
}

function locate(filesDir: string | null, path: string): string {
  const refuse = (message: string): Error => unsound('source', [{ field: ['path'], message }]);
  if (filesDir === null) throw refuse('files are read from RUNLEDGER_FILES_DIR, which is not set');
  const place = resolve(filesDir, path);
  const way = relative(filesDir, place);
  if (way === '' || way === '..' || way.startsWith(`..${sep}`))
    throw refuse('must lie in RUNLEDGER_FILES_DIR');
  return place;
}
