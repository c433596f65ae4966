// Keeps secrets out of what people read: log lines and messages of the process. Owns the values that this process
// knows to be secret, and the forms by which others are recognised. Any layer may tell it a secret; who writes
// for people asks it last.

const REDACTED = '[redacted]';

/** A shorter text would be found by chance everywhere, and is no secret. */
const SHORTEST = 6;
/** Forms of secrets that are met with, known at a time; the oldest is forgotten first. */
const MOST = 2_000;
const DEEPEST = 8;

/** What to look for, by the secret. */
type Known = Map<string, string | RegExp>;

/** Secrets that this process has met with. */
const met: Known = new Map();
/** Its own, which it was started with: few, and never forgotten. */
const own: Known = new Map();

/** This value is shown nowhere until very many others were met with; of settings, every text in them. */
export function keepSecret(value: unknown): void {
  remember(met, value);
  while (met.size > MOST) met.delete(met.keys().next().value!);
}

/** The same of what the process was started with, for as long as it runs. */
export function keepOwnSecret(value: unknown): void {
  remember(own, value);
}

function remember(known: Known, value: unknown, depth = 0): void {
  if (typeof value === 'string') rememberText(known, value);
  else if (typeof value === 'object' && value !== null && depth < DEEPEST) {
    for (const each of Object.values(value)) remember(known, each, depth + 1);
  }
}

function rememberText(known: Known, value: string): void {
  if (value.length < SHORTEST) return;
  // In a line of JSON it stands escaped.
  for (const form of new Set([value, JSON.stringify(value).slice(1, -1), encodeURIComponent(value)])) {
    known.delete(form);
    // Digits alone may be the middle of some figure.
    known.set(form, /^\d+$/.test(form) ? new RegExp(`(?<![\\d.])${form}(?![\\d.])`, 'g') : form);
  }
}

/** What is a secret by its form, wherever it stands: passwords in addresses, bearer tokens, keys in queries. */
const FORMS: readonly (readonly [RegExp, string])[] = [
  [/([a-z][a-z\d+.-]*:\/\/)[^\s/@"'\\]*@/gi, `$1${REDACTED}@`],
  [/\b(bearer|basic)(\s+)[\w+/=.~-]{8,}/gi, `$1$2${REDACTED}`],
  [/\brl_[\w-]{8,}/g, REDACTED],
  [/([?&;\s][\w-]*(?:token|key|secret|password|passwd|signature|sig)=)[^&\s"'\\#;]+/gi, `$1${REDACTED}`],
];

/** The text without any secret in it. */
export function redactText(text: string): string {
  let clean = text;
  for (const known of [own, met]) {
    for (const [secret, form] of known) {
      if (clean.includes(secret)) clean = clean.replaceAll(form, REDACTED);
    }
  }
  for (const [form, stand] of FORMS) clean = clean.replace(form, stand);
  return clean;
}

const SECRET_NAME =
  /^(?:proxy-)?authorization$|cookie|password|passwd|secret|token$|api[-_]?key|routing[-_]?key|credential|signature|connection[-_]?(?:params|string)|^headers$/i;

/** The same facts, without the values of what is secret by its name. */
export function redactFacts(facts: object, depth = 0): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(facts).map(([name, value]) => [name, redactValue(name, value, depth)]),
  );
}

function redactValue(name: string, value: unknown, depth: number): unknown {
  if (SECRET_NAME.test(name)) return value === null || value === undefined ? value : REDACTED;
  if (typeof value !== 'object' || value === null || value instanceof Error) return value;
  if (value instanceof Date) return value;
  if (depth >= DEEPEST) return '[too deep]';
  if (Array.isArray(value)) return value.map((each) => redactValue('', each, depth + 1));
  // What is no plain object knows best how it is written.
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null ? redactFacts(value, depth + 1) : value;
}

/** What of an error may be told beside its text; drivers hang whole connections and requests on theirs. */
const TOLD = [
  'code',
  'errno',
  'syscall',
  'hostname',
  'address',
  'port',
  'severity',
  'constraint',
  'table',
] as const;

/** An error as it may be written down, with what caused it. */
export function describeError(error: unknown, depth = 0): unknown {
  if (!(error instanceof Error))
    return typeof error === 'object' && error !== null ? redactFacts(error) : error;
  const { name, message, stack, cause } = error;
  const own = error as unknown as Readonly<Record<string, unknown>>;
  const told = TOLD.flatMap((fact) => (isPlain(own[fact]) ? [[fact, own[fact]]] : []));
  const inner = error instanceof AggregateError ? error.errors.slice(0, DEEPEST) : [];
  const isNested = depth < DEEPEST;
  return {
    type: name,
    message,
    stack,
    ...Object.fromEntries(told),
    ...(cause !== undefined && isNested ? { cause: describeError(cause, depth + 1) } : {}),
    ...(inner.length > 0 && isNested ? { errors: inner.map((each) => describeError(each, depth + 1)) } : {}),
  };
}

function isPlain(value: unknown): boolean {
  return typeof value === 'string' || typeof value === 'number';
}
