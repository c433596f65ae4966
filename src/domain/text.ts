// Texts that can be kept as they are.

const UNSTORABLE = /[\0\p{Surrogate}]/u;
const EACH_UNSTORABLE = new RegExp(UNSTORABLE, 'gu');
const REPLACEMENT = '\u{fffd}';

/** PostgreSQL's text holds no NUL, and half a surrogate pair would come back as another character. */
export function isStorable(text: string): boolean {
  return !UNSTORABLE.test(text);
}

/** What somebody else has said, made fit to be kept: at most so many UTF-16 units, whole characters, no NUL. */
export function storableText(text: string, maxLength: number): string {
  if (text.length <= maxLength) return text.replace(EACH_UNSTORABLE, REPLACEMENT);
  // Half a pair that the cut leaves at the end goes with the other half.
  const kept = text.slice(0, Math.max(0, maxLength - 1)).replace(/[\ud800-\udbff]$/, '');
  return `${kept.replace(EACH_UNSTORABLE, REPLACEMENT)}…`.slice(0, maxLength);
}
