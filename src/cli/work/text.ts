// Text from a command, made fit for the ledger: PostgreSQL keeps neither NUL nor half a character, and nobody
// wants colours and cursor movements in it.

import { stripVTControlCharacters } from 'node:util';

/** Of a line that was written over again and again, the last state. */
export function cleanLine(line: string): string {
  return clean(line.replace(/\r+$/, '').split('\r').at(-1)!);
}

export function clean(text: string): string {
  const plain = stripVTControlCharacters(text).replaceAll('\0', '␀');
  // The way through UTF-8 replaces what a cut has left of a character.
  return Buffer.from(plain, 'utf8').toString('utf8');
}

/** Pieces of at most `longest`, none of which ends in the middle of a character. */
export function cut(line: string, longest: number): string[] {
  const pieces: string[] = [];
  let rest = line;
  while (rest.length > longest) {
    const end = isLowSurrogate(rest.charCodeAt(longest)) ? longest - 1 : longest;
    pieces.push(rest.slice(0, end));
    rest = rest.slice(end);
  }
  return [...pieces, rest];
}

function isLowSurrogate(unit: number): boolean {
  return unit >= 0xdc00 && unit <= 0xdfff;
}
