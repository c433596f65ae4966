// A stand-in for an OpenTelemetry collector: takes OTLP as JSON over real HTTP and keeps the spans.
import { Receiver } from './receiver.js';

export interface Span {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId: string | undefined;
  readonly name: string;
  readonly facts: Readonly<Record<string, unknown>>;
  readonly isFailed: boolean;
}

interface OtlpSpan extends Omit<Span, 'facts' | 'isFailed'> {
  readonly attributes: readonly { readonly key: string; readonly value: Readonly<Record<string, unknown>> }[];
  readonly status: { readonly code?: number };
}

interface OtlpBody {
  readonly resourceSpans: readonly {
    readonly scopeSpans: readonly { readonly spans: readonly OtlpSpan[] }[];
  }[];
}

export class Collector {
  static async start(): Promise<Collector> {
    return new Collector(await Receiver.start());
  }

  private constructor(readonly receiver: Receiver) {}

  get endpoint(): string {
    return this.receiver.url('');
  }

  get spans(): Span[] {
    return this.receiver.at('/v1/traces').flatMap(({ body }) => spansIn(body as OtlpBody));
  }

  /** Everything that was sent, for a look at what must not be in it. */
  get text(): string {
    return this.receiver.received.map(({ text }) => text).join('\n');
  }

  stop(): Promise<void> {
    return this.receiver.stop();
  }
}

function spansIn({ resourceSpans }: OtlpBody): Span[] {
  const spans = resourceSpans.flatMap((resource) => resource.scopeSpans.flatMap((scope) => scope.spans));
  return spans.map(({ traceId, spanId, parentSpanId, name, attributes, status }) => ({
    traceId,
    spanId,
    parentSpanId,
    name,
    facts: Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]])),
    isFailed: status.code === 2,
  }));
}
