// Whether this process traces: loads the tracer when the configuration names a collector, and nothing of it when
// not.

import type { TracingConfig } from '../config/tracing.js';
import { TracedKind } from '../runner/traced-kind.js';
import type { WorkKind } from '../runner/work.js';
import type { Database } from '../store/db.js';
import { installTracer } from '../tracing.js';
import type { OpenTelemetry } from './open-telemetry.js';

export class Tracing {
  readonly #tracer: OpenTelemetry | null;

  static async start(config: TracingConfig | null): Promise<Tracing> {
    if (config === null) return new Tracing(null);
    const { OpenTelemetry } = await import('./open-telemetry.js');
    return new Tracing(new OpenTelemetry(config));
  }

  private constructor(tracer: OpenTelemetry | null) {
    this.#tracer = tracer;
    if (tracer) installTracer(tracer);
  }

  /** The same kinds of work, shown in traces if there are any. */
  showWork(db: Database, kinds: readonly WorkKind[]): readonly WorkKind[] {
    const tracer = this.#tracer;
    if (tracer === null) return kinds;
    const traceparentOfRun = (runId: string): string => tracer.traceparentOfRun(runId);
    return kinds.map((kind) => new TracedKind(kind, { db, traceparentOfRun }));
  }

  async stop(): Promise<void> {
    if (this.#tracer === null) return;
    installTracer(null);
    await this.#tracer.stop();
  }
}
