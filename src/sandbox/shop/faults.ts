// Which fault an external id asks for. Owns the prefixes that people type to try a failure; every other
// part of the shop asks here, so an id means the same everywhere.

export type Fault =
  | { readonly kind: 'refuse' }
  | { readonly kind: 'unavailable'; readonly times: number }
  | { readonly kind: 'throttle' }
  | { readonly kind: 'deny' }
  | { readonly kind: 'hang' }
  | { readonly kind: 'drift' };

const FAULTS_BY_PREFIX: ReadonlyMap<string, Fault> = new Map([
  ['fail', { kind: 'refuse' }],
  ['down', { kind: 'unavailable', times: Infinity }],
  ['throttle', { kind: 'throttle' }],
  ['auth', { kind: 'deny' }],
  ['hang', { kind: 'hang' }],
  ['drift', { kind: 'drift' }],
]);

/** `fail-…`, `flakyN-…`, `down-…`, `throttle-…`, `auth-…`, `hang-…`, `drift-…`; null for a plain id. */
export function faultOf(externalId: string): Fault | null {
  const dash = externalId.indexOf('-');
  if (dash < 0) return null;
  const prefix = externalId.slice(0, dash);
  const flaky = /^flaky(\d+)$/.exec(prefix);
  if (flaky) return { kind: 'unavailable', times: Number(flaky[1]) };
  return FAULTS_BY_PREFIX.get(prefix) ?? null;
}
