// What the runner does, a log line for each batch: claimed, sent to the channel, settled. App adds it to the
// observers when these lines are wanted.

import { tellingOf } from './log.js';
import type { ChannelCall, FeedCall, RunnerObserver, SettledBatch } from './observer.js';
import type { RunOfWork, WorkResult } from './work.js';

interface DebugLog {
  debug(details: object, message: string): void;
}

export class LogObserver implements RunnerObserver {
  constructor(private readonly log: DebugLog) {}

  onClaim(kind: string, ms: number, run?: RunOfWork, items?: number): void {
    this.log.debug({ ...(run && tellingOf(run)), kind, items, ms: Math.round(ms) }, 'claimed');
  }

  onCall({ outcomes, ms, channelId, purpose, items, ...run }: ChannelCall): void {
    const facts = { channelId, purpose, items, outcomes, ms: Math.round(ms) };
    this.log.debug({ ...tellingOf(run), ...facts }, 'called the channel');
  }

  onFeedCall({ ms, runId, correlationId, ...facts }: FeedCall): void {
    this.log.debug(
      { ...tellingOf({ runId, correlationId }), ...facts, ms: Math.round(ms) },
      'called the source',
    );
  }

  onSettle({ kind, ms, events, runMs, ...run }: SettledBatch): void {
    this.log.debug({ ...tellingOf(run), kind, events, ms: Math.round(ms), runMs }, 'settled');
  }

  onWork(kind: string, result: WorkResult, ms: number, run?: RunOfWork): void {
    this.log.debug({ ...(run && tellingOf(run)), kind, result, ms: Math.round(ms) }, 'worked');
  }
}
