// What has arrived and was not taken yet. Bounded: a program that is slower than its run holds a limited number
// of ledger lines, or the newest state of each run, never a growing history.

import type { RunEvent, RunState } from './shapes.js';

export interface Inbox<Item> {
  readonly isEmpty: boolean;
  /** Nothing more may be put in until it is empty. */
  readonly isFull: boolean;
  put(item: Item): void;
  take(): Item | undefined;
}

const MOST_LINES = 10_000;
/** Of lines written as JSON; one that is larger by itself is taken all the same. */
const MOST_CHARACTERS = 16 * 2 ** 20;

/** Lines in order, each once. */
export class LedgerInbox<Line extends RunEvent> implements Inbox<Line> {
  private lines: Line[] = [];
  private taken = 0;
  /** Of those that were taken too, like the lines: they are let go together. */
  private characters = 0;

  constructor(
    /** The seq of the newest line that has arrived. */
    public cursor: number,
    private readonly mostLines = MOST_LINES,
  ) {}

  get isEmpty(): boolean {
    return this.taken === this.lines.length;
  }

  get isFull(): boolean {
    return this.lines.length >= this.mostLines || this.characters >= MOST_CHARACTERS;
  }

  put(line: Line): void {
    // A line is never handed out twice, whatever a server sends.
    if (line.seq <= this.cursor) return;
    this.cursor = line.seq;
    this.lines.push(line);
    this.characters += JSON.stringify(line).length;
  }

  take(): Line | undefined {
    const line = this.lines[this.taken];
    if (line === undefined) return undefined;
    this.taken += 1;
    if (this.isEmpty) {
      this.lines = [];
      this.taken = this.characters = 0;
    }
    return line;
  }
}

/** Runs of which the state that came last is remembered. */
const MOST_REMEMBERED = 1_000;

/**
 * The newest state of each run; one that nobody took in time gives way to the next. What a server shows again
 * after an interruption, just as it was, is no news.
 */
export class StateInbox<State extends RunState> implements Inbox<State> {
  readonly isFull = false;
  private readonly states = new Map<string, State>();
  /** As text, by run; the one that changed least recently first. */
  private readonly newest = new Map<string, string>();

  get isEmpty(): boolean {
    return this.states.size === 0;
  }

  put(state: State): void {
    if (this.isNews(state)) this.states.set(state.id, state);
  }

  take(): State | undefined {
    for (const [id, state] of this.states) {
      this.states.delete(id);
      return state;
    }
    return undefined;
  }

  private isNews(state: State): boolean {
    const text = JSON.stringify(state);
    if (this.newest.get(state.id) === text) return false;
    this.newest.delete(state.id);
    this.newest.set(state.id, text);
    const [oldest] = this.newest.keys();
    if (this.newest.size > MOST_REMEMBERED) this.newest.delete(oldest!);
    return true;
  }
}
