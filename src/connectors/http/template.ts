// Placeholders: `{{externalId}}` and the like in the URLs, headers and bodies of an http channel. Pure. A JSON
// string that is one placeholder and nothing else becomes the value itself, so a number stays a number.

export type Fields = Readonly<Record<string, unknown>>;

const PLACEHOLDER = /\{\{\s*([\w.-]+)\s*\}\}/g;
const WHOLE = /^\{\{\s*([\w.-]+)\s*\}\}$/;

/** The names that a template refers to; what looks like a placeholder and is none stands as it is written. */
export function findPlaceholders(template: unknown): Set<string> {
  const names = new Set<string>();
  for (const text of textsIn(template)) {
    for (const [, name] of text.matchAll(PLACEHOLDER)) names.add(name!);
    const rest = text.replaceAll(PLACEHOLDER, '');
    if (rest.includes('{{')) names.add(rest.slice(rest.indexOf('{{')));
  }
  return names;
}

export function renderJson(template: unknown, fields: Fields): unknown {
  if (typeof template === 'string') {
    const whole = WHOLE.exec(template);
    return whole ? fields[whole[1]!] : renderText(template, fields);
  }
  if (Array.isArray(template)) return template.map((value) => renderJson(value, fields));
  if (typeof template !== 'object' || template === null) return template;
  const entries = Object.entries(template);
  return Object.fromEntries(
    entries.map(([key, value]) => [renderText(key, fields), renderJson(value, fields)]),
  );
}

export function renderText(template: string, fields: Fields): string {
  return template.replaceAll(PLACEHOLDER, (_, name: string) => String(fields[name]));
}

/** Throws a RangeError when a value would make another address of it. */
export function renderUrl(template: string, fields: Fields): string {
  return template.replaceAll(PLACEHOLDER, (_, name: string) => encodePart(fields[name]));
}

function encodePart(value: unknown): string {
  if (Array.isArray(value)) return value.map(encodePart).join(',');
  const text = String(value);
  // A path of dots climbs up, however it is encoded.
  if (/^\.{1,2}$/.test(text)) throw new RangeError(`${JSON.stringify(text)} cannot stand in a URL`);
  if (/\p{Surrogate}/u.test(text)) throw new RangeError('Half a character cannot stand in a URL');
  return encodeURIComponent(text);
}

function* textsIn(template: unknown): Generator<string> {
  if (typeof template === 'string') yield template;
  else if (typeof template === 'object' && template !== null) {
    for (const [key, value] of Object.entries(template)) {
      yield key;
      yield* textsIn(value);
    }
  }
}
