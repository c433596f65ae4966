// Owns the configuration: which variables there are, what each may hold, and the frozen Config made of
// them. It reads no environment itself: main and cli hand it in. Either everything is right, or one error
// names every fault; the value of a secret is never part of it.
import { BlockList, isIP } from 'node:net';
import { resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { readTracing, TRACING_VARIABLES, type TracingConfig } from './config/tracing.js';
import { AppError } from './errors.js';

export type Role = 'all' | 'api' | 'runner';
export type LogLevel = 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal' | 'silent';
export type DatabaseConfig =
  | { readonly kind: 'embedded'; readonly dataDir: string }
  | { readonly kind: 'external'; readonly url: string };

export interface Config {
  readonly http: { readonly host: string; readonly port: number };
  readonly database: DatabaseConfig;
  readonly role: Role;
  /** Bootstrap admin key. */
  readonly apiKey: string | null;
  /** What channels' credentials are encrypted with: the first encrypts, all of them decrypt. */
  readonly secretKeys: readonly string[];
  /** What webhooks that queue ops runs are signed with; null turns them off. */
  readonly webhookSecret: string | null;
  readonly sandbox: { readonly enabled: boolean; readonly restorePerSecond: number | null };
  readonly retry: { readonly baseMs: number; readonly maxMs: number; readonly throttleBaseMs: number };
  readonly callTimeoutMs: number;
  readonly leaseMs: number;
  /** Least time between two states of a run that a subscriber is shown. */
  readonly progressIntervalMs: number;
  readonly staleClaimMs: number;
  /** How long a worker of an ops run may be silent. */
  readonly staleRunMs: number;
  readonly circuitOpenMs: number;
  /** After how long without progress a partition counts as stuck. */
  readonly stuckMs: number;
  /** Where sources may read files from; null: nowhere. */
  readonly filesDir: string | null;
  /** Loops per process. */
  readonly workers: number;
  readonly logLevel: LogLevel;
  /** Null: no traces are sent. */
  readonly tracing: TracingConfig | null;
}

type Environment = Readonly<Record<string, string | undefined>>;

/** One variable: what it accepts, said twice, for the parser and for the person who got it wrong. */
interface Variable<T> {
  readonly schema: z.ZodType<T, string>;
  readonly allowed: string;
  readonly secret?: true;
}

const DAY_MS = 24 * 60 * 60 * 1000;

function integer(min: number, max: number): Variable<number> {
  const schema = z
    .string()
    .regex(/^\d{1,15}$/)
    .transform(Number)
    .pipe(z.number().min(min).max(max));
  return { schema, allowed: `an integer from ${min} to ${max}` };
}

function oneOf<const T extends readonly [string, ...string[]]>(...values: T): Variable<T[number]> {
  const schema: z.ZodType<T[number], string> = z
    .string()
    .refine((value): value is T[number] => values.includes(value));
  return { schema, allowed: `one of ${values.join(', ')}` };
}

function isHost(value: string): boolean {
  return isIP(value) !== 0 || /^(?!\d+(\.\d+)*$)[a-z\d]([a-z\d.-]*[a-z\d])?$/i.test(value);
}

function isDatabaseUrl(value: string): boolean {
  return /^postgres(ql)?:\/\//.test(value) && !/\s/.test(value) && URL.canParse(value);
}

const DIRECTORY: Variable<string> = {
  schema: z.string().refine((value) => value.trim() === value && !value.includes('\0')),
  allowed: 'a directory path',
};

const VARIABLES = {
  HOST: { schema: z.string().refine(isHost), allowed: 'a host name or an IP address, without a port' },
  PORT: integer(0, 65_535),
  DATABASE_URL: {
    schema: z.string().refine(isDatabaseUrl),
    allowed: 'a URL that begins with postgres:// or postgresql://',
    secret: true,
  },
  RUNLEDGER_DATA_DIR: DIRECTORY,
  RUNLEDGER_ROLE: oneOf('all', 'api', 'runner'),
  RUNLEDGER_API_KEY: {
    schema: z.string().regex(/^\S{8,512}$/),
    allowed: '8 to 512 characters without white space',
    secret: true,
  },
  RUNLEDGER_SECRET_KEY: {
    schema: z
      .string()
      .transform((value) => value.split(','))
      .pipe(z.array(z.string().regex(/^(?:[\da-f]{64}|[\w+/-]{43}=?)$/i))),
    allowed:
      '32 bytes in hexadecimal (64 digits) or base64 (44 characters), or several of them with commas in between',
    secret: true,
  },
  RUNLEDGER_WEBHOOK_SECRET: {
    schema: z.string().regex(/^\S{8,512}$/),
    allowed: '8 to 512 characters without white space',
    secret: true,
  },
  RUNLEDGER_SANDBOX: oneOf('on', 'off'),
  RUNLEDGER_SANDBOX_RESTORE_PER_S: {
    schema: z
      .string()
      .regex(/^\d{1,9}(\.\d{1,9})?$/)
      .transform(Number)
      .pipe(z.number().positive().max(1_000_000)),
    allowed: 'a number above 0, up to 1000000',
  },
  RUNLEDGER_RETRY_BASE_MS: integer(1, DAY_MS),
  RUNLEDGER_RETRY_MAX_MS: integer(1, DAY_MS),
  RUNLEDGER_THROTTLE_BASE_MS: integer(1, DAY_MS),
  RUNLEDGER_CALL_TIMEOUT_MS: integer(1, DAY_MS),
  RUNLEDGER_LEASE_MS: integer(1, DAY_MS),
  RUNLEDGER_PROGRESS_INTERVAL_MS: integer(1, 60_000),
  RUNLEDGER_STALE_CLAIM_MS: integer(1, DAY_MS),
  RUNLEDGER_STALE_RUN_MS: integer(1, DAY_MS),
  RUNLEDGER_CIRCUIT_OPEN_MS: integer(1, DAY_MS),
  RUNLEDGER_STUCK_MS: integer(1, DAY_MS),
  RUNLEDGER_FILES_DIR: DIRECTORY,
  RUNLEDGER_WORKERS: integer(1, 64),
  RUNLEDGER_LOG_LEVEL: oneOf('trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'),
  ...TRACING_VARIABLES,
} satisfies Record<string, Variable<unknown>>;

type VariableName = keyof typeof VARIABLES;
type Values = { [N in VariableName]?: z.output<(typeof VARIABLES)[N]['schema']> };

/** What is not for the server but may stand in its environment: of the test suite, of the command line and of
 * the commands that it runs for ops runs. */
const FOREIGN = /^RUNLEDGER_(TEST_|RUN_|URL$)/;

const loopback = new BlockList();
loopback.addSubnet('127.0.0.0', 8, 'ipv4');
loopback.addAddress('::1', 'ipv6');

/** True if nobody outside this machine can reach a server that listens on `host`. */
export function isLoopbackHost(host: string): boolean {
  const bare = host.replace(/^\[(.*)\]$/, '$1');
  if (bare.toLowerCase() === 'localhost') return true;
  const version = isIP(bare);
  return version !== 0 && loopback.check(bare, version === 6 ? 'ipv6' : 'ipv4');
}

/** Makes the configuration of an environment, or throws one INVALID_INPUT that names every fault. */
export function loadConfig(env: Environment): Config {
  const { values, faults } = readValues(env);
  const config = assemble(values);
  const all = [...faults.values(), ...contradictions(config, faults), ...unknownVariables(env)];
  if (all.length > 0) {
    const list = all.map((fault) => `  - ${fault}`).join('\n');
    throw new AppError('INVALID_INPUT', `The configuration is not valid:\n${list}`, {
      details: { faults: all },
    });
  }
  return config;
}

type Faults = ReadonlyMap<string, string>;

function readValues(env: Environment): { values: Values; faults: Faults } {
  const values: Record<string, unknown> = {};
  const faults = new Map<string, string>();
  for (const [name, variable] of Object.entries<Variable<unknown>>(VARIABLES)) {
    const given = env[name];
    if (given === undefined || given === '') continue;
    const parsed = variable.schema.safeParse(given);
    if (parsed.success) values[name] = parsed.data;
    else faults.set(name, `${name}: expected ${variable.allowed}, not ${shown(given, variable)}`);
  }
  return { values: values as Values, faults };
}

function shown(given: string, variable: Variable<unknown>): string {
  if (variable.secret) return 'the value given (a secret, so not shown)';
  return JSON.stringify(given.length > 80 ? `${given.slice(0, 80)}…` : given);
}

function assemble(values: Values): Config {
  const database = chooseDatabase(values);
  return Object.freeze<Config>({
    http: Object.freeze({ host: values.HOST ?? '127.0.0.1', port: values.PORT ?? 4000 }),
    database: Object.freeze(database),
    role: values.RUNLEDGER_ROLE ?? 'all',
    apiKey: values.RUNLEDGER_API_KEY ?? null,
    secretKeys: Object.freeze(values.RUNLEDGER_SECRET_KEY ?? []),
    webhookSecret: values.RUNLEDGER_WEBHOOK_SECRET ?? null,
    sandbox: Object.freeze({
      enabled: values.RUNLEDGER_SANDBOX ? values.RUNLEDGER_SANDBOX === 'on' : database.kind === 'embedded',
      restorePerSecond: values.RUNLEDGER_SANDBOX_RESTORE_PER_S ?? null,
    }),
    retry: Object.freeze({
      baseMs: values.RUNLEDGER_RETRY_BASE_MS ?? 2_000,
      maxMs: values.RUNLEDGER_RETRY_MAX_MS ?? 64_000,
      throttleBaseMs: values.RUNLEDGER_THROTTLE_BASE_MS ?? 16_000,
    }),
    callTimeoutMs: values.RUNLEDGER_CALL_TIMEOUT_MS ?? 60_000,
    leaseMs: values.RUNLEDGER_LEASE_MS ?? 120_000,
    progressIntervalMs: values.RUNLEDGER_PROGRESS_INTERVAL_MS ?? 100,
    staleClaimMs: values.RUNLEDGER_STALE_CLAIM_MS ?? 300_000,
    staleRunMs: values.RUNLEDGER_STALE_RUN_MS ?? 1_800_000,
    circuitOpenMs: values.RUNLEDGER_CIRCUIT_OPEN_MS ?? 60_000,
    stuckMs: values.RUNLEDGER_STUCK_MS ?? 600_000,
    filesDir: values.RUNLEDGER_FILES_DIR === undefined ? null : resolve(values.RUNLEDGER_FILES_DIR),
    workers: values.RUNLEDGER_WORKERS ?? 4,
    logLevel: values.RUNLEDGER_LOG_LEVEL ?? 'info',
    tracing: readTracing(values),
  });
}

function chooseDatabase(values: Values): DatabaseConfig {
  if (values.DATABASE_URL !== undefined) return { kind: 'external', url: values.DATABASE_URL };
  // The project directory is the parent of src as well as of dist.
  const project = fileURLToPath(new URL('..', import.meta.url));
  const dataDir = values.RUNLEDGER_DATA_DIR ?? resolve(project, '.runledger');
  return { kind: 'embedded', dataDir: resolve(dataDir) };
}

/** Faults of values that are right one by one. A variable with a fault of its own is not judged again. */
function* contradictions({ http, database, apiKey, retry }: Config, faults: Faults): Generator<string> {
  const sound = (...names: VariableName[]) => !names.some((name) => faults.has(name));
  if (sound('RUNLEDGER_RETRY_BASE_MS', 'RUNLEDGER_RETRY_MAX_MS') && retry.baseMs > retry.maxMs) {
    yield `RUNLEDGER_RETRY_BASE_MS: ${retry.baseMs} is above RUNLEDGER_RETRY_MAX_MS, which is ${retry.maxMs}`;
  }
  // With DATABASE_URL there may be keys in the database: the app looks at start.
  const open = database.kind === 'embedded' && apiKey === null && !isLoopbackHost(http.host);
  if (open && sound('HOST', 'DATABASE_URL', 'RUNLEDGER_API_KEY')) {
    yield (
      `HOST: ${JSON.stringify(http.host)} can be reached from other machines and no API key is set: ` +
      'set RUNLEDGER_API_KEY, or HOST to 127.0.0.1'
    );
  }
}

function* unknownVariables(env: Environment): Generator<string> {
  for (const [name, given] of Object.entries(env)) {
    if (!name.startsWith('RUNLEDGER_') || FOREIGN.test(name)) continue;
    if (given === undefined || given === '' || Object.hasOwn(VARIABLES, name)) continue;
    const nearest = nearestVariable(name);
    yield `${name}: there is no such variable${nearest === null ? '' : `; did you mean ${nearest}?`}`;
  }
}

function nearestVariable(name: string): string | null {
  const ranked = Object.keys(VARIABLES)
    .map((known) => ({ known, distance: editDistance(name, known) }))
    .sort((a, b) => a.distance - b.distance);
  const best = ranked[0];
  return best !== undefined && best.distance <= 4 ? best.known : null;
}

/** Fewest single-character insertions, deletions and substitutions that turn `a` into `b`. */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (const [i, letter] of [...a].entries()) {
    const next = [i + 1];
    for (const [j, other] of [...b].entries()) {
      const substituted = row[j]! + (letter === other ? 0 : 1);
      next.push(Math.min(substituted, row[j + 1]! + 1, next[j]! + 1));
    }
    row = next;
  }
  return row[b.length]!;
}
