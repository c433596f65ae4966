// Where traces go, as OpenTelemetry's own variables say it.
import { expect, test } from 'vitest';
import { loadConfig } from '../../src/config.js';

const ENDPOINT = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' };

test('an endpoint alone turns tracing on, with everything else as usual', () => {
  expect(loadConfig(ENDPOINT).tracing).toEqual({
    url: 'http://collector:4318/v1/traces',
    headers: {},
    serviceName: 'runledger',
    ratio: 1,
  });
});

test('a path, headers, a name and a share reach their places', () => {
  const { tracing } = loadConfig({
    OTEL_EXPORTER_OTLP_ENDPOINT: 'https://collector.example/otlp/',
    OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Bearer%20abc, x-scope=a=b,x-raw=100%',
    OTEL_SERVICE_NAME: 'prices',
    OTEL_TRACES_SAMPLER_ARG: '0.25',
  });
  expect(tracing).toEqual({
    url: 'https://collector.example/otlp/v1/traces',
    headers: { authorization: 'Bearer abc', 'x-scope': 'a=b', 'x-raw': '100%' },
    serviceName: 'prices',
    ratio: 0.25,
  });
});

test('without an endpoint the rest means nothing, and other variables of OpenTelemetry are none of ours', () => {
  const env = { OTEL_SERVICE_NAME: 'prices', OTEL_TRACES_SAMPLER_ARG: '1', OTEL_PROPAGATORS: 'b3' };
  expect(loadConfig(env).tracing).toBeNull();
});

test.each([
  ['OTEL_EXPORTER_OTLP_ENDPOINT', 'collector:4318'],
  ['OTEL_EXPORTER_OTLP_ENDPOINT', 'grpc://u:hidden-part@collector:4317'],
  ['OTEL_EXPORTER_OTLP_HEADERS', 'hidden-part'],
  ['OTEL_EXPORTER_OTLP_HEADERS', 'a=hidden-part,,b=c'],
  ['OTEL_TRACES_SAMPLER_ARG', '1.5'],
  ['OTEL_TRACES_SAMPLER_ARG', '-1'],
])('%s=%s is refused, and no secret shown', (name, value) => {
  const load = () => loadConfig({ ...ENDPOINT, [name]: value });
  expect(load).toThrow(name);
  expect(load).not.toThrow('hidden-part');
});
