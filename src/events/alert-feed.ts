// Alerts as those who watch them see them: what fires now, then each that fires and each that resolves. A bell
// says that there is news; what is delivered is read from the table, so a bell that is lost costs time and no
// alert. A watcher is shown each alert once as it fires and once as it resolves. Called by resolvers.

import type { Logger } from 'pino';
import { AppError } from '../errors.js';
import type { Viewer } from '../domain/viewer.js';
import { readAlertsSince, type AlertRow, type AlertsRead } from '../store/alert.js';
import type { Database } from '../store/db.js';
import { FeedIterator } from './feed-iterator.js';
import type { BellListener } from './listener.js';
import { DEFAULT_BACKSTOP_MS } from './patience.js';

export class AlertFeed {
  private readonly watchers = new Map<string, Set<AlertWatcher>>();
  private readonly reading = new Map<string, Promise<void>>();
  private readonly forget: readonly (() => void)[];
  private readonly backstop: NodeJS.Timeout;
  private stopped = false;

  constructor(
    private readonly db: Database,
    listener: Pick<BellListener, 'onAlert' | 'onReconnect'>,
    private readonly options: { readonly log: Logger; readonly backstopMs?: number },
  ) {
    const lookAtAll = (): void => [...this.watchers.keys()].forEach((tenantId) => this.look(tenantId));
    this.forget = [listener.onAlert((tenantId) => this.look(tenantId)), listener.onReconnect(lookAtAll)];
    this.backstop = setInterval(lookAtAll, options.backstopMs ?? DEFAULT_BACKSTOP_MS).unref();
  }

  watch({ tenantId }: Viewer): AsyncIterableIterator<AlertRow> {
    if (this.stopped) throw stopping();
    const watchers = this.watchers.get(tenantId) ?? new Set<AlertWatcher>();
    this.watchers.set(tenantId, watchers);
    const watcher = new AlertWatcher(() => {
      watchers.delete(watcher);
      if (watchers.size === 0) this.watchers.delete(tenantId);
    });
    watchers.add(watcher);
    this.look(tenantId);
    return watcher;
  }

  stop(): void {
    this.stopped = true;
    clearInterval(this.backstop);
    for (const forget of this.forget) forget();
    for (const watchers of this.watchers.values()) for (const watcher of watchers) watcher.fail(stopping());
  }

  /** Reads of one tenant follow each other: one that has begun may be too old for whoever asks now. */
  private look(tenantId: string): void {
    if (!this.watchers.has(tenantId)) return;
    const next = (this.reading.get(tenantId) ?? Promise.resolve()).then(() => this.read(tenantId));
    this.reading.set(tenantId, next);
    void next.then(() => {
      if (this.reading.get(tenantId) === next) this.reading.delete(tenantId);
    });
  }

  private async read(tenantId: string): Promise<void> {
    const watchers = [...(this.watchers.get(tenantId) ?? [])];
    if (watchers.length === 0) return;
    const seen = watchers.flatMap(({ upTo }) => upTo?.getTime() ?? []);
    try {
      const since = seen.length === 0 ? null : new Date(Math.min(...seen));
      const read = await readAlertsSince(this.db, tenantId, since);
      for (const watcher of watchers) watcher.show(read);
    } catch (err) {
      // The backstop looks again.
      this.options.log.warn({ err }, 'alerts could not be read for those who watch them');
    }
  }
}

function stopping(): AppError {
  return new AppError('UNAVAILABLE', 'The server is stopping; subscribe again.');
}

class AlertWatcher extends FeedIterator<AlertRow> {
  private unread: AlertRow[] = [];
  /** How each alert was last shown; one that was never shown firing is not shown resolving. */
  private readonly shown = new Map<string, 'FIRING' | 'RESOLVED'>();

  private cameAt: Date | null = null;
  /** It has seen whatever was so at this time; null before the first look. */
  upTo: Date | null = null;

  constructor(private readonly onLeave: () => void) {
    super();
  }

  show({ alerts, at }: AlertsRead): void {
    const cameAt = (this.cameAt ??= at);
    this.upTo = at;
    this.forgetAllBut(new Set(alerts.map(({ id }) => id)));
    for (const alert of alerts) {
      const status = alert.resolvedAt === null ? 'FIRING' : 'RESOLVED';
      const before = this.shown.get(alert.id);
      if (before === status) continue;
      // It fired and resolved between two looks, or was over before this watcher came.
      if (before === undefined && status === 'RESOLVED' && alert.firedAt < cameAt) continue;
      this.shown.set(alert.id, status);
      this.unread.push(alert);
    }
    this.wake();
  }

  /** What is not read any more is over, and will not be read again. */
  private forgetAllBut(ids: ReadonlySet<string>): void {
    for (const id of this.shown.keys()) if (!ids.has(id)) this.shown.delete(id);
  }

  protected take(): AlertRow | null {
    return this.unread.shift() ?? null;
  }

  protected leave(): void {
    this.unread = [];
    this.onLeave();
  }
}
