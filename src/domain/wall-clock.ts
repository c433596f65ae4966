// What the clocks on the walls of a time zone show, over the days on which they are put forward or back. Shown
// times are written as if they were UTC; all are in milliseconds. Pure.

/** No change of a clock is felt further off. */
const DAY_MS = 24 * 3_600_000;

export class WallClock {
  readonly #format: Intl.DateTimeFormat;

  constructor(timeZone: string) {
    const number = 'numeric';
    const date = { year: number, month: number, day: number } as const;
    const time = { hour: number, minute: number, second: number, hourCycle: 'h23' } as const;
    this.#format = new Intl.DateTimeFormat('en-US', { timeZone, calendar: 'gregory', ...date, ...time });
  }

  shownAt(time: number): number {
    const parts = this.#format.formatToParts(time);
    const part = (wanted: string) => Number(parts.find(({ type }) => type === wanted)!.value);
    const [year, month, day] = [part('year'), part('month'), part('day')];
    const second = Date.UTC(year, month - 1, day, part('hour'), part('minute'), part('second'));
    return second + (time % 1000);
  }

  /** When the clock shows `wall` for the first time; if it never does, when it is put forward past it. */
  firstTimeOf(wall: number): number {
    const offsets = [wall - DAY_MS, wall + DAY_MS].map((time) => this.shownAt(time) - time);
    let early = wall - Math.max(...offsets);
    let late = wall - Math.min(...offsets);
    if (this.shownAt(early) >= wall) return early;
    // At `early` not yet, at `late` it does; in between it is not put back.
    while (late - early > 1) {
      const middle = Math.floor((early + late) / 2);
      if (this.shownAt(middle) >= wall) late = middle;
      else early = middle;
    }
    return late;
  }
}
