// Settings with credentials among them, as people see and save them: credentials are masked on the way out, and
// a mask that comes back means "as it was". Pure. Also the port through which the API asks about a kind of
// thing that has settings, without knowing any.

import { isObject } from './json.js';

export type Settings = Readonly<Record<string, unknown>>;

/** Stands for a credential wherever settings are shown. */
export const MASK = '********';

export interface SettingKinds {
  /** The names of the settings that hold credentials; null when there is no such kind. */
  secretNames(kind: string): readonly string[] | null;
  /** Throws INVALID_INPUT that names every fault. */
  check(kind: string, config: Settings): void;
}

/** The settings with every credential masked; all of them are, when nobody knows which they are. */
export function maskSettings(config: Settings, secretNames: readonly string[] | null): Settings {
  return mapSettings(config, (value, name) =>
    secretNames === null || secretNames.includes(name) ? maskValue(value) : value,
  );
}

/** The credentials alone. */
export function pickSecrets(config: Settings, secretNames: readonly string[]): Settings {
  return Object.fromEntries(Object.entries(config).filter(([name]) => secretNames.includes(name)));
}

/** What a client saves, with what is stored wherever it left a mask. */
export function unmaskValue(given: unknown, stored: unknown): unknown {
  if (given === MASK) return stored === undefined ? MASK : stored;
  if (!isSettings(given)) return given;
  const former = isSettings(stored) ? stored : {};
  return mapSettings(given, (value, name) => unmaskValue(value, ownValue(former, name)));
}

export function holdsMask(value: unknown): boolean {
  return value === MASK || (isSettings(value) && Object.values(value).some(holdsMask));
}

/** Whether settings name a host that the former ones did not: a credential of theirs is not meant for it. */
export function leadElsewhere(settings: Settings, former: Settings): boolean {
  const known = new Set(placesIn(former));
  return placesIn(settings).some((place) => !known.has(place));
}

/** The origins of all addresses in it, and what stands for a host by its name. */
function placesIn(value: unknown, name = ''): string[] {
  if (typeof value === 'string') {
    if (name === 'host') return [value.toLowerCase()];
    return URL.canParse(value) && value.includes('://') ? [originOf(new URL(value))] : [];
  }
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, each]) => placesIn(each, key));
}

function originOf({ protocol, host }: URL): string {
  return `${protocol}//${host}`;
}

export function isSettings(value: unknown): value is Settings {
  return isObject(value);
}

function maskValue(value: unknown): unknown {
  return isSettings(value) ? mapSettings(value, maskValue) : MASK;
}

function mapSettings(settings: Settings, change: (value: unknown, name: string) => unknown): Settings {
  return Object.fromEntries(Object.entries(settings).map(([name, value]) => [name, change(value, name)]));
}

function ownValue(settings: Settings, name: string): unknown {
  return Object.hasOwn(settings, name) ? settings[name] : undefined;
}
