// Hears the database's doorbell: one LISTEN connection per process, kept for as long as the process runs. What
// it tells is that a run, an alert, a key or an endpoint for webhooks has news, never what the news is. Bells are
// lost while the connection is away; `onReconnect` says when to look again. The only importer of pg-listen. Called by app, feed and, through app,
// the runner.

import { EventEmitter } from 'node:events';
import pgListen, { type Subscriber } from 'pg-listen';
import type { Logger } from 'pino';
import { z } from 'zod';
import { RUN_KINDS } from '../domain/run.js';
import type { RunHead } from '../store/run.js';

export interface ListenerOptions {
  readonly url: string;
  readonly log: Logger;
  /** Between questions to the server, so that a connection that died in silence is noticed. */
  readonly checkMs?: number;
  /** How long the server may take to answer one. */
  readonly checkTimeoutMs?: number;
  /** Between tries to connect again. */
  readonly retryMs?: number;
}

const CHANNEL = 'runledger';
const CONNECT_TIMEOUT_MS = 10_000;

const shared = {
  id: z.string(),
  tenant: z.string(),
  /** When it was rung, by the database's clock. */
  at: z.number(),
};
const payloadSchema = z.discriminatedUnion('kind', [
  z.object({ kind: z.enum(RUN_KINDS), seq: z.number().int(), ...shared }),
  z.object({ kind: z.literal('ALERT'), ...shared }),
  z.object({ kind: z.literal('KEY'), ...shared }),
  z.object({ kind: z.literal('WEBHOOK'), ...shared }),
]);

type Bell = z.infer<typeof payloadSchema>;

export class BellListener {
  private readonly emitter = new EventEmitter().setMaxListeners(0);
  private subscriber: Subscriber | null = null;
  private healthy = false;
  private stopped = false;

  /** Fails when the database cannot be reached now; once started, it never gives up. */
  static async start(options: ListenerOptions): Promise<BellListener> {
    const listener = new BellListener(options);
    await listener.open();
    return listener;
  }

  private constructor(private readonly options: ListenerOptions) {}

  /** Whether bells are heard, as far as is known. */
  get isHealthy(): boolean {
    return this.healthy;
  }

  /** Returns how to stop hearing them. */
  onBell(handle: (head: RunHead) => void): () => void {
    this.emitter.on('bell', handle);
    return () => this.emitter.off('bell', handle);
  }

  /** An alert of this tenant fired or resolved. */
  onAlert(handle: (tenantId: string) => void): () => void {
    this.emitter.on('alert', handle);
    return () => this.emitter.off('alert', handle);
  }

  /** The API key of this id was revoked, or given another role. */
  onKeyChange(handle: (keyId: string) => void): () => void {
    this.emitter.on('key', handle);
    return () => this.emitter.off('key', handle);
  }

  /** This tenant has an endpoint for webhooks that is new, changed, or to be tried. */
  onWebhookChange(handle: (tenantId: string) => void): () => void {
    this.emitter.on('webhook', handle);
    return () => this.emitter.off('webhook', handle);
  }

  onReconnect(handle: () => void): () => void {
    this.emitter.on('reconnect', handle);
    return () => this.emitter.off('reconnect', handle);
  }

  /** Told with every bell how many milliseconds it was on its way. */
  onLag(handle: (ms: number) => void): () => void {
    this.emitter.on('lag', handle);
    return () => this.emitter.off('lag', handle);
  }

  async stop(): Promise<void> {
    this.stopped = true;
    this.healthy = false;
    this.emitter.removeAllListeners();
    await this.subscriber?.close();
  }

  private async open(): Promise<void> {
    const subscriber = this.createSubscriber();
    const isCurrent = (): boolean => this.subscriber === subscriber && !this.stopped;
    this.subscriber = subscriber;
    subscriber.events.on('reconnect', () => (this.healthy = false));
    subscriber.events.on('connected', () => {
      if (!isCurrent()) this.discard(subscriber);
      else if (subscriber.getSubscribedChannels().length > 0) this.welcomeBack();
    });
    subscriber.events.on('error', (error) => {
      if (isCurrent()) void this.replace(subscriber, error);
    });
    subscriber.notifications.on(CHANNEL, (text?: string) => this.ring(text));
    try {
      await subscriber.connect();
      await subscriber.listenTo(CHANNEL);
      this.healthy = true;
    } catch (error) {
      this.subscriber = null;
      this.discard(subscriber);
      throw error;
    }
  }

  private createSubscriber(): Subscriber {
    const { url, checkMs = 10_000, checkTimeoutMs = 5_000, retryMs = 500 } = this.options;
    const subscriber: Subscriber = pgListen.default(
      {
        connectionString: url,
        application_name: 'runledger-listener',
        connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
        keepAliveInitialDelayMillis: checkMs,
        // pg-listen waits for its check without end; this ends it.
        query_timeout: checkTimeoutMs,
      },
      {
        paranoidChecking: checkMs,
        // 0 tries for ever; its default gives up after three seconds.
        retryTimeout: 0,
        // Closing does not end its retries: only an error does.
        retryInterval: () => {
          if (this.stopped || this.subscriber !== subscriber) throw new Error('the listener was discarded');
          return retryMs;
        },
        parse: (text) => text,
      },
    );
    return subscriber;
  }

  /** pg-listen gives up for good when a new connection is lost before it listens: start over. */
  private async replace(broken: Subscriber, error: Error): Promise<void> {
    this.healthy = false;
    this.subscriber = null;
    this.options.log.warn({ err: error }, 'the listener lost its connection');
    this.discard(broken);
    while (!this.stopped && this.subscriber === null) {
      await new Promise((resolve) => setTimeout(resolve, this.options.retryMs ?? 500));
      if (this.stopped) return;
      try {
        await this.open();
        this.welcomeBack();
      } catch (err) {
        this.options.log.warn({ err }, 'the listener cannot connect yet');
      }
    }
  }

  private welcomeBack(): void {
    this.healthy = true;
    this.options.log.info('the listener is connected again');
    this.emitter.emit('reconnect');
  }

  private discard(subscriber: Subscriber): void {
    subscriber.close().catch((err: unknown) => this.options.log.debug({ err }, 'a lost connection'));
  }

  private ring(text: string | undefined): void {
    // What rings before `onReconnect` is found by the look that follows it. Told now, it would pass for a sign
    // that nothing was missed.
    if (!this.healthy) return;
    const bell = readBell(text);
    try {
      if (bell === null) this.options.log.warn({ text: text?.slice(0, 200) }, 'a bell that says nothing');
      else this.tell(bell);
    } catch (err) {
      // Thrown out of here, a fault of whoever listens would end the process.
      this.options.log.error({ err }, 'a bell was not answered');
    }
  }

  private tell(bell: Bell): void {
    this.emitter.emit('lag', Date.now() - bell.at);
    if (bell.kind === 'ALERT') return void this.emitter.emit('alert', bell.tenant);
    if (bell.kind === 'KEY') return void this.emitter.emit('key', bell.id);
    if (bell.kind === 'WEBHOOK') return void this.emitter.emit('webhook', bell.tenant);
    const { kind, id, seq, tenant: tenantId } = bell;
    this.emitter.emit('bell', { kind, id, seq, tenantId } satisfies RunHead);
  }
}

/** Anybody who can connect may NOTIFY on our channel. */
function readBell(text: string | undefined): Bell | null {
  try {
    return payloadSchema.parse(JSON.parse(text ?? ''));
  } catch {
    return null;
  }
}
