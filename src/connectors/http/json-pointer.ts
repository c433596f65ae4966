// JSON pointers (RFC 6901): where in an answer something stands. Pure.

export function isPointer(text: string): boolean {
  return /^(\/([^~/]|~[01])*)*$/.test(text);
}

/** The value at the pointer; undefined when there is none. */
export function valueAt(json: unknown, pointer: string): unknown {
  return pointer
    .split('/')
    .slice(1)
    .map((token) => token.replaceAll('~1', '/').replaceAll('~0', '~'))
    .reduce(stepInto, json);
}

function stepInto(value: unknown, token: string): unknown {
  if (typeof value !== 'object' || value === null || !Object.hasOwn(value, token)) return undefined;
  if (Array.isArray(value) && !/^\d+$/.test(token)) return undefined;
  return (value as Record<string, unknown>)[token];
}
