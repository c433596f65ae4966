// Dead letters as files: one line each, as NDJSON or CSV, filtered like the `deadLetters` query. Called by app.

import type { Viewer } from '../domain/viewer.js';
import { readDeadLetters } from '../store/dead-letter.js';
import type { Database } from '../store/db.js';
import type { RuleTargetRow } from '../store/rule-target.js';
import { csvLine } from './csv.js';
import type { Download } from './download.js';

interface Format {
  readonly ending: string;
  readonly contentType: string;
  readonly head: string;
  line(target: RuleTargetRow): string;
}

const COLUMNS = [
  'id',
  'runId',
  'externalId',
  'currency',
  'beforeAmount',
  'afterAmount',
  'attempts',
  'errorCode',
  'errorMessage',
] as const;

const FORMATS: readonly Format[] = [
  {
    ending: 'ndjson',
    contentType: 'application/x-ndjson; charset=utf-8',
    head: '',
    line: (target) => `${JSON.stringify({ ...pick(target), failedAt: target.failedAt })}\n`,
  },
  {
    ending: 'csv',
    contentType: 'text/csv; charset=utf-8; header=present',
    head: csvLine([...COLUMNS, 'failedAt']),
    line: (target) =>
      csvLine([...COLUMNS.map((name) => target[name]), target.failedAt?.toISOString() ?? null]),
  },
];

export function deadLetterExports(db: Database): Download[] {
  return FORMATS.map((format) => ({
    path: `/export/dead-letters.${format.ending}`,
    contentType: format.contentType,
    fileName: `dead-letters.${format.ending}`,
    parameters: ['projectId', 'runId', 'errorCode'],
    read: (viewer, parameters) => renderDeadLetters(db, viewer, format, parameters),
  }));
}

async function* renderDeadLetters(
  db: Database,
  viewer: Viewer,
  { head, line }: Format,
  parameters: ReadonlyMap<string, string>,
): AsyncGenerator<string, void, undefined> {
  if (head !== '') yield head;
  const filter = {
    projectId: parameters.get('projectId') ?? null,
    runId: parameters.get('runId') ?? null,
    errorCode: parameters.get('errorCode') ?? null,
  };
  for await (const targets of readDeadLetters(db, viewer, filter)) yield targets.map(line).join('');
}

function pick(target: RuleTargetRow): Record<string, unknown> {
  return Object.fromEntries(COLUMNS.map((name) => [name, target[name]]));
}
