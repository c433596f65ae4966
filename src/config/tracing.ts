// Owns where traces go: the variables that OpenTelemetry has given the same names everywhere. Called by config.

import { z } from 'zod';

export interface TracingConfig {
  /** Where spans are posted. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly serviceName: string;
  /** Which part of the traces that begin here is kept. */
  readonly ratio: number;
}

const HEADER = /^\s*([\w!#$%&'*+.^`|~-]+)\s*=\s*([^,\s][^,]*?)\s*$/;

export const TRACING_VARIABLES = {
  OTEL_EXPORTER_OTLP_ENDPOINT: {
    schema: z.string().refine((value) => /^https?:\/\//.test(value) && URL.canParse(value)),
    allowed: 'a URL that begins with http:// or https://',
    secret: true,
  },
  OTEL_EXPORTER_OTLP_HEADERS: {
    schema: z
      .string()
      .transform((value) => value.split(',').map((pair) => HEADER.exec(pair)))
      .pipe(z.array(z.custom<RegExpExecArray>((pair) => pair !== null)))
      .transform((pairs) => Object.fromEntries(pairs.map(([, name, value]) => [name!, decode(value!)]))),
    allowed: 'name=value, or several with commas in between',
    secret: true,
  },
  OTEL_SERVICE_NAME: { schema: z.string().max(200), allowed: 'up to 200 characters' },
  OTEL_TRACES_SAMPLER_ARG: {
    schema: z
      .string()
      .regex(/^\d(\.\d{1,9})?$/)
      .transform(Number)
      .pipe(z.number().max(1)),
    allowed: 'a number from 0 to 1',
  },
} as const;

interface Values {
  readonly OTEL_EXPORTER_OTLP_ENDPOINT?: string;
  readonly OTEL_EXPORTER_OTLP_HEADERS?: Readonly<Record<string, string>>;
  readonly OTEL_SERVICE_NAME?: string;
  readonly OTEL_TRACES_SAMPLER_ARG?: number;
}

/** Null: tracing is off. */
export function readTracing(values: Values): TracingConfig | null {
  const endpoint = values.OTEL_EXPORTER_OTLP_ENDPOINT;
  if (endpoint === undefined) return null;
  return Object.freeze({
    url: `${endpoint.replace(/\/+$/, '')}/v1/traces`,
    headers: Object.freeze(values.OTEL_EXPORTER_OTLP_HEADERS ?? {}),
    serviceName: values.OTEL_SERVICE_NAME ?? 'runledger',
    ratio: values.OTEL_TRACES_SAMPLER_ARG ?? 1,
  });
}

/** Values are sent percent-encoded; one that is not is meant as it stands. */
function decode(value: string): string {
  try {
    return decodeURIComponent(value);
  } catch {
    return value;
  }
}
