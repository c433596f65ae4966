// A WHERE clause that is put together from what was asked for. What was not asked for is not in the text, so
// that the planner sees which index fits.

import { decodeRunCursor } from './page.js';

export class Conditions {
  readonly values: unknown[] = [];
  readonly #texts: string[] = [];

  get sql(): string {
    return this.#texts.join(' AND ');
  }

  /** Each `?` of the condition stands for one value. */
  add(condition: string, ...values: readonly unknown[]): void {
    const places = values.map((value) => `$${this.values.push(value)}`);
    this.#texts.push(condition.replaceAll('?', () => places.shift()!));
  }

  /** Nothing when there is no value. */
  addIfGiven(condition: string, value: unknown): void {
    if (value !== null && value !== undefined) this.add(condition, value);
  }

  addOneOf(column: string, words: readonly string[] | null | undefined): void {
    // One word is an equality, which an index keeps in order.
    if (words?.length === 1) this.add(`${column} = ?`, words[0]);
    else if (words) this.add(`${column} = ANY(?)`, words);
  }

  /** Of a list of runs, newest first: what comes after the cursor. */
  addAfterRun(cursor: string, id = 'id'): void {
    this.add(`(created_at, ${id}) < (?, ?)`, ...decodeRunCursor(cursor));
  }
}
