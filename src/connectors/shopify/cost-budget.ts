// The shop's points as this process last heard of them. Owns the pacing: a call waits here until its
// points should be there, instead of running into the throttle. One per channel, shared by its calls.

import { EventEmitter, once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';

export interface ThrottleStatus {
  readonly maximumAvailable: number;
  readonly currentlyAvailable: number;
  readonly restoreRate: number;
}

export interface Clock {
  /** Milliseconds that never go back. */
  now(): number;
  /** Rejects when the signal aborts. */
  sleep(ms: number, signal: AbortSignal): Promise<void>;
}

export const SYSTEM_CLOCK: Clock = {
  now: () => performance.now(),
  sleep: (ms, signal) => delay(ms, undefined, { signal }),
};

/** Long waits are taken in steps, so that a newer report can shorten them. */
const LONGEST_STEP_MS = 1_000;

interface Level {
  readonly maximum: number;
  readonly restoreRate: number;
  points: number;
  at: number;
}

export class CostBudget {
  readonly #clock: Clock;
  readonly #answers = new EventEmitter().setMaxListeners(0);
  #level: Level | null = null;
  #inFlight = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** What should be there by now; null until the shop has said. */
  get level(): { available: number; capacity: number; restorePerSecond: number } | null {
    if (this.#level === null) return null;
    this.#restore(this.#level);
    const { points, maximum, restoreRate } = this.#level;
    return { available: points, capacity: maximum, restorePerSecond: restoreRate };
  }

  /** Waits until the points should be there, and takes them. Rejects when the signal aborts. */
  async reserve(cost: number, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    while (!this.#mayStart(cost)) await this.#wait(cost, signal);
    this.#inFlight += cost;
    if (this.#level) this.#level.points -= Math.min(cost, this.#level.maximum);
  }

  /** Ends a reservation with what the answer said of the budget, if it did. */
  settle(cost: number, reported: ThrottleStatus | null): void {
    this.#inFlight -= cost;
    if (reported) {
      this.#level = {
        maximum: reported.maximumAvailable,
        restoreRate: reported.restoreRate,
        // Whether the shop has already charged the calls under way is not known: assume that it has not.
        points: reported.currentlyAvailable - this.#inFlight,
        at: this.#clock.now(),
      };
    }
    this.#answers.emit('answer');
  }

  #mayStart(cost: number): boolean {
    // The first call goes alone: until it is answered nobody knows how much there is to spend.
    if (this.#level === null) return this.#inFlight === 0;
    return this.#shortage(this.#level, cost) <= 0;
  }

  async #wait(cost: number, signal: AbortSignal): Promise<void> {
    if (this.#level === null) {
      await once(this.#answers, 'answer', { signal });
      return;
    }
    const ms = Math.ceil((this.#shortage(this.#level, cost) / this.#level.restoreRate) * 1000);
    await this.#clock.sleep(Math.min(ms, LONGEST_STEP_MS), signal);
  }

  #shortage(level: Level, cost: number): number {
    // A shop that restores nothing cannot be waited for.
    if (level.restoreRate <= 0) return 0;
    this.#restore(level);
    return Math.min(cost, level.maximum) - level.points;
  }

  #restore(level: Level): void {
    const now = this.#clock.now();
    const restored = ((now - level.at) / 1000) * level.restoreRate;
    level.points = Math.min(level.maximum, level.points + restored);
    level.at = now;
  }
}
