// COPY … FROM STDIN over one connection: the fastest way into PostgreSQL, and so the limit.

import pg from 'pg';

interface Wire {
  query(text: string): void;
  sendCopyFromChunk(chunk: Buffer): void;
  endCopyFrom(): void;
}

/** A query of the driver's that answers the server's request for data with what it was given. */
class CopyIn {
  readonly done: Promise<void>;
  #resolve!: () => void;
  #reject!: (error: Error) => void;

  constructor(
    private readonly text: string,
    private readonly chunks: readonly Buffer[],
  ) {
    this.done = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  submit(wire: Wire): void {
    wire.query(this.text);
  }

  handleCopyInResponse(wire: Wire): void {
    for (const chunk of this.chunks) wire.sendCopyFromChunk(chunk);
    wire.endCopyFrom();
  }

  handleCommandComplete(): void {}

  handleReadyForQuery(): void {
    this.#resolve();
  }

  handleError(error: Error): void {
    this.#reject(error);
  }
}

export async function copyRows(client: pg.Client, text: string, rows: readonly string[]): Promise<void> {
  const chunks: Buffer[] = [];
  for (let at = 0; at < rows.length; at += 500) chunks.push(Buffer.from(rows.slice(at, at + 500).join('')));
  const copy = new CopyIn(text, chunks);
  client.query(copy as unknown as pg.Submittable);
  await copy.done;
}
