// Where `watch` writes: a line that is written over on a terminal, lines one after another elsewhere, or JSON.

import type { AnyRunState, RunEvent } from '../../client/index.js';
import type { Kind } from '../run-kind.js';
import { printable, renderState } from './run-state.js';

const CLEAR_LINE = '\r\u001b[2K';

export class Screen {
  private readonly terminal = process.stdout.isTTY === true;
  private shown = '';
  private hasLedger = false;

  constructor(
    private readonly kind: Kind,
    private readonly json: boolean,
  ) {}

  showState(run: AnyRunState): void {
    if (this.json) return this.print(JSON.stringify({ state: run }));
    const text = renderState(this.kind, run);
    if (text === this.shown) return;
    this.shown = text;
    if (this.terminal) process.stdout.write(`${CLEAR_LINE}${text.slice(0, process.stdout.columns - 1)}`);
    // Beside a ledger that tells of every change, the state is told at the end.
    else if (!this.hasLedger) this.print(text);
  }

  showLine(line: RunEvent): void {
    this.hasLedger = true;
    if (this.json) return this.print(JSON.stringify({ event: line }));
    const [, time = line.createdAt] = /T(\d\d:\d\d:\d\d)/.exec(line.createdAt) ?? [];
    const head = `${time} ${line.level.padEnd(5)} ${line.type === 'log' ? '' : `${line.type}  `}`;
    const text = `${head}${printable(line.message)}`;
    if (!this.terminal) return this.print(text);
    process.stdout.write(`${CLEAR_LINE}${text}\n${this.shown.slice(0, process.stdout.columns - 1)}`);
  }

  showEnd(run: AnyRunState): void {
    if (this.json) return;
    if (this.terminal) process.stdout.write(`${CLEAR_LINE}${renderState(this.kind, run)}\n`);
    else if (this.hasLedger) this.print(renderState(this.kind, run));
  }

  note(message: string): void {
    if (this.terminal && this.shown !== '') process.stdout.write(CLEAR_LINE);
    console.error(`runledger: ${message}`);
  }

  end(): void {
    this.shown = '';
  }

  private print(line: string): void {
    process.stdout.write(`${line}\n`);
  }
}
