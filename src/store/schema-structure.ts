// What the migrations leave in a database beside its tables, read from their text: the doctor compares it with what is
// there. It knows the few ways in which our migrations say such things; a test compares it with a migrated database.

import { createHash } from 'node:crypto';

export interface Named {
  readonly name: string;
  readonly table: string;
}

export interface SchemaStructure {
  readonly triggers: readonly Named[];
  readonly constraints: readonly Named[];
  readonly indexes: readonly string[];
  /** By name with schema; several of one name are told apart by their bodies. */
  readonly functions: readonly { readonly name: string; readonly bodySha256: string }[];
}

const TRIGGER =
  /\b(CREATE|DROP)(?: CONSTRAINT)? TRIGGER (?:IF EXISTS )?"?(\w+)"?\s(?:[^;]*?\s)?ON "?([\w.]+)"?/g;
const INDEX = /\b(CREATE|DROP)(?: UNIQUE)? INDEX "?(\w+)"?/g;
const TABLE = /\b(?:CREATE|ALTER) TABLE "?(\w+)"?([^;]*);/g;
const CONSTRAINT = /\b(ADD |DROP )?CONSTRAINT "?(\w+)"?/g;
/** One that is written without quotes has no text in the catalog: that it is there is all that can be said. */
const FUNCTION =
  /^(?:DROP FUNCTION ([\w.]+)|CREATE (?:OR REPLACE )?FUNCTION ([\w.]+)\s*\(([^]*?)\)\s*(?:RETURNS|LANGUAGE)\s[^;]*?(?:AS \$\$([^]*?)\$\$|;))/gm;

/** `texts` are the migrations, oldest first: what a later one drops or replaces is gone. */
export function readStructure(texts: readonly string[]): SchemaStructure {
  const triggers = new Map<string, Named>();
  const constraints = new Map<string, Named>();
  const indexes = new Set<string>();
  const functions = new Map<string, SchemaStructure['functions'][number]>();
  for (const text of texts) {
    readFunctions(text, functions);
    const statements = text.replace(/--.*$/gm, '').replace(/\$\$[^]*?\$\$/g, '');
    readTriggers(statements, triggers);
    readConstraints(statements, constraints);
    for (const [, verb, name] of statements.matchAll(INDEX)) {
      if (verb === 'DROP') indexes.delete(name!);
      else indexes.add(name!);
    }
  }
  return {
    triggers: [...triggers.values()],
    constraints: [...constraints.values()],
    indexes: [...indexes],
    functions: [...functions.values()],
  };
}

function readTriggers(statements: string, triggers: Map<string, Named>): void {
  for (const [, verb, name, table] of statements.matchAll(TRIGGER)) {
    if (verb === 'DROP') triggers.delete(`${table} ${name}`);
    else triggers.set(`${table} ${name}`, { name: name!, table: table! });
  }
}

function readConstraints(statements: string, constraints: Map<string, Named>): void {
  for (const [, table, parts] of statements.matchAll(TABLE)) {
    for (const [, verb, name] of parts!.matchAll(CONSTRAINT)) {
      if (verb === 'DROP ') constraints.delete(`${table} ${name}`);
      else constraints.set(`${table} ${name}`, { name: name!, table: table! });
    }
  }
}

function readFunctions(text: string, functions: Map<string, SchemaStructure['functions'][number]>): void {
  for (const [, dropped, created, parameters, body] of text.matchAll(FUNCTION)) {
    if (dropped !== undefined) {
      // All of its name: so far none was dropped that left another.
      for (const key of functions.keys()) if (key.startsWith(`${qualify(dropped)}(`)) functions.delete(key);
      continue;
    }
    const name = qualify(created!);
    const bodySha256 = createHash('sha256')
      .update(body ?? '')
      .digest('hex');
    functions.set(`${name}(${parameters!.replace(/ DEFAULT [^,]*|\s+/g, ' ').trim()})`, { name, bodySha256 });
  }
}

function qualify(name: string): string {
  return name.includes('.') ? name : `public.${name}`;
}
