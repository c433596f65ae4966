// Tracing by OpenTelemetry, sent to a collector over OTLP. Imported only when an address is configured, so that
// a server without one loads none of it. Spans wait in a bounded queue and are dropped when the collector does
// not take them: nothing waits for it, and a stop only for a moment.

import { AsyncLocalStorage } from 'node:async_hooks';
import {
  isValidSpanId,
  isValidTraceId,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
  TraceFlags,
  type Context,
  type Span,
  type SpanContext,
  type Tracer as OtelTracer,
} from '@opentelemetry/api';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { resourceFromAttributes } from '@opentelemetry/resources';
import {
  BatchSpanProcessor,
  ParentBasedSampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace';
import type { TracingConfig } from '../config/tracing.js';
import type { Facts, OpenSpan, SpanRequest, Tracer } from '../tracing.js';

/** For one try to hand spans over, also when a stop waits for it. */
const EXPORT_TIMEOUT_MS = 3_000;
const STOP_TIMEOUT_MS = 2_000;
const SEND_EVERY_MS = 1_000;
const MAX_QUEUED_SPANS = 8_192;
/** Facts are short by intent; this holds for what others name, like operations. */
const MAX_FACT_LENGTH = 256;

const KINDS = {
  internal: SpanKind.INTERNAL,
  server: SpanKind.SERVER,
  client: SpanKind.CLIENT,
  consumer: SpanKind.CONSUMER,
} as const;

export class OpenTelemetry implements Tracer {
  readonly #provider: TracerProvider;
  readonly #tracer: OtelTracer;
  readonly #sampler: ParentBasedSampler;
  readonly #here = new AsyncLocalStorage<Context>();

  constructor({ url, headers, serviceName, ratio }: TracingConfig) {
    const exporter = new OTLPTraceExporter({
      url,
      headers: { ...headers },
      timeoutMillis: EXPORT_TIMEOUT_MS,
    });
    const processor = new BatchSpanProcessor({
      exporter,
      maxQueueSize: MAX_QUEUED_SPANS,
      scheduledDelayMillis: SEND_EVERY_MS,
      exportTimeoutMillis: EXPORT_TIMEOUT_MS,
    });
    this.#sampler = new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(ratio) });
    this.#provider = new TracerProvider({
      resource: resourceFromAttributes({ 'service.name': serviceName }),
      sampler: this.#sampler,
      spanLimits: { attributeValueLengthLimit: MAX_FACT_LENGTH },
      spanProcessors: [processor],
    });
    this.#tracer = this.#provider.getTracer('runledger');
  }

  run<T>(request: SpanRequest, work: (span: OpenSpan) => Promise<T>): Promise<T> {
    const { span, context } = this.#open(request);
    return this.#here.run(context, () => endAfter(span, () => work(new Opened(span))));
  }

  record(request: SpanRequest, ms: number): void {
    const end = Date.now();
    this.#open(request, new Date(end - ms)).span.end(new Date(end));
  }

  iterate<T>(
    request: SpanRequest,
    source: AsyncIterable<T>,
    onItem: (item: T, span: OpenSpan) => void,
  ): AsyncIterable<T> {
    const { span, context } = this.#open(request);
    const opened = new Opened(span);
    const here = this.#here;
    return {
      async *[Symbol.asyncIterator]() {
        // A generator goes on in the context of whoever asks for its next item.
        const iterator = here.run(context, () => source[Symbol.asyncIterator]());
        try {
          for (;;) {
            const step = await here.run(context, () => iterator.next());
            if (step.done === true) return;
            onItem(step.value, opened);
            yield step.value;
          }
        } catch (error) {
          opened.fail(reasonOf(error));
          throw error;
        } finally {
          await iterator.return?.();
          span.end();
        }
      },
    };
  }

  current(): OpenSpan | null {
    const span = this.#currentSpan();
    return span && new Opened(span);
  }

  traceparent(): string | null {
    const span = this.#currentSpan();
    if (!span) return null;
    const { traceId, spanId, traceFlags } = span.spanContext();
    return `00-${traceId}-${spanId}-${(traceFlags & TraceFlags.SAMPLED) === 0 ? '00' : '01'}`;
  }

  /** A run that nobody's request set going has a trace of its own, by its id. */
  traceparentOfRun(runId: string): string {
    const traceId = runId.replaceAll('-', '');
    const { decision } = this.#sampler.shouldSample(ROOT_CONTEXT, traceId, '', SpanKind.INTERNAL, {}, []);
    // Any span id will do, so long as it is the same for all units of the run: the end of the id is random.
    return `00-${traceId}-${traceId.slice(-16)}-${decision === 0 ? '00' : '01'}`;
  }

  /** Sends what waits, if the collector takes it soon. */
  async stop(): Promise<void> {
    const patience = new AbortController();
    const timeUp = new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, STOP_TIMEOUT_MS);
      patience.signal.addEventListener('abort', () => clearTimeout(timer), { once: true });
    });
    await Promise.race([this.#provider.shutdown().catch(() => {}), timeUp]);
    patience.abort();
  }

  #currentSpan(): Span | null {
    const context = this.#here.getStore();
    return (context && trace.getSpan(context)) ?? null;
  }

  #open({ name, kind = 'internal', facts, parent }: SpanRequest, startTime?: Date): Opening {
    const given = parent === undefined || parent === null ? null : readTraceparent(parent);
    const around = given
      ? trace.setSpanContext(ROOT_CONTEXT, given)
      : (this.#here.getStore() ?? ROOT_CONTEXT);
    const options = {
      kind: KINDS[kind],
      ...(facts ? { attributes: facts } : {}),
      ...(startTime ? { startTime } : {}),
    };
    const span = this.#tracer.startSpan(name, options, around);
    return { span, context: trace.setSpan(around, span) };
  }
}

interface Opening {
  readonly span: Span;
  readonly context: Context;
}

class Opened implements OpenSpan {
  constructor(private readonly span: Span) {}

  note(facts: Facts): void {
    this.span.setAttributes(facts);
  }

  rename(name: string): void {
    this.span.updateName(name.slice(0, MAX_FACT_LENGTH));
  }

  fail(message: string): void {
    this.span.setStatus({ code: SpanStatusCode.ERROR, message: message.slice(0, MAX_FACT_LENGTH) });
  }
}

async function endAfter<T>(span: Span, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    new Opened(span).fail(reasonOf(error));
    throw error;
  } finally {
    span.end();
  }
}

/** Not its message: that may quote what is no collector's business. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return 'failed';
  return 'code' in error && typeof error.code === 'string' ? error.code : error.name;
}

const TRACEPARENT = /^(?!ff)[\da-f]{2}-([\da-f]{32})-([\da-f]{16})-([\da-f]{2})(?:-.*)?$/;

/** Null for what is none, by the letter of W3C Trace Context. */
function readTraceparent(text: string): SpanContext | null {
  const [, traceId, spanId, flags] = TRACEPARENT.exec(text.trim()) ?? [];
  if (traceId === undefined || spanId === undefined || flags === undefined) return null;
  if (!isValidTraceId(traceId) || !isValidSpanId(spanId)) return null;
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16) & TraceFlags.SAMPLED, isRemote: true };
}
