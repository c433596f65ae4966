// The port to tracing: what the parts of Runledger say about the way of a piece of work. Off unless app installs
// a tracer, and then each call is one test of a variable. Facts are few, short and no secrets: names, counts,
// statuses and the ids of runs. Any layer but the pure ones may call it.

export type Facts = Readonly<Record<string, string | number | boolean>>;

export interface SpanRequest {
  readonly name: string;
  /** server: somebody waits for it; consumer: it was queued; client: we wait for somebody else. */
  readonly kind?: 'internal' | 'server' | 'client' | 'consumer';
  readonly facts?: Facts;
  /** A W3C traceparent; without it the span belongs to the one that is open here. */
  readonly parent?: string | null;
}

/** A span that is open. */
export interface OpenSpan {
  note(facts: Facts): void;
  rename(name: string): void;
  /** It did not do what it was for. */
  fail(reason: string): void;
}

export interface Tracer {
  /** Runs `work` in a span that ends with it; spans that are opened inside belong to it. */
  run<T>(request: SpanRequest, work: (span: OpenSpan) => Promise<T>): Promise<T>;
  /** A span that is over already, and took so many milliseconds. */
  record(request: SpanRequest, ms: number): void;
  /** Keeps one span open around all of an iteration. */
  iterate<T>(
    request: SpanRequest,
    source: AsyncIterable<T>,
    onItem: (item: T, span: OpenSpan) => void,
  ): AsyncIterable<T>;
  /** The span that is open here. */
  current(): OpenSpan | null;
  /** Its W3C traceparent. */
  traceparent(): string | null;
}

let tracer: Tracer | null = null;

/** Null turns it off. */
export function installTracer(installed: Tracer | null): void {
  tracer = installed;
}

const NO_SPAN: OpenSpan = { note: () => {}, rename: () => {}, fail: () => {} };

export function inSpan<T>(request: SpanRequest, work: (span: OpenSpan) => Promise<T>): Promise<T> {
  return tracer === null ? work(NO_SPAN) : tracer.run(request, work);
}

export function recordSpan(request: SpanRequest, ms: number): void {
  tracer?.record(request, ms);
}

export function overIteration<T>(
  request: SpanRequest,
  source: AsyncIterable<T>,
  onItem: (item: T, span: OpenSpan) => void,
): AsyncIterable<T> {
  return tracer === null ? source : tracer.iterate(request, source, onItem);
}

export function currentSpan(): OpenSpan | null {
  return tracer === null ? null : tracer.current();
}

export function currentTraceparent(): string | null {
  return tracer === null ? null : tracer.traceparent();
}

/** How many there were of each, as facts. */
export function countFacts(counts: Readonly<Record<string, number>>): Facts {
  return Object.fromEntries(
    Object.entries(counts).map(([name, count]) => [`runledger.count.${name.toLowerCase()}`, count]),
  );
}

/** `fetch` in a span of its own, which the other side is told of. */
export function tracedFetch(url: string, init: RequestInit): Promise<Response> {
  if (tracer === null) return fetch(url, init);
  const method = init.method ?? 'GET';
  // Of the address only the host: the rest may carry secrets.
  const facts = { 'http.request.method': method, 'server.address': new URL(url).host };
  return tracer.run({ name: `HTTP ${method}`, kind: 'client', facts }, async (span) => {
    const response = await fetch(url, withTraceparent(init, currentTraceparent()));
    span.note({ 'http.response.status_code': response.status });
    if (response.status >= 400) span.fail(`HTTP ${response.status}`);
    return response;
  });
}

function withTraceparent(init: RequestInit, traceparent: string | null): RequestInit {
  if (traceparent === null) return init;
  const headers = new Headers(init.headers);
  headers.set('traceparent', traceparent);
  return { ...init, headers };
}
