// Texts that can be kept as they are.

const UNSTORABLE = /[\0\p{Surrogate}]/u;

/** PostgreSQL's text holds no NUL, and half a surrogate pair would come back as another character. */
export function isStorable(text: string): boolean {
  return !UNSTORABLE.test(text);
}
