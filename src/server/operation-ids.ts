// What graphql-ws calls a client's subscriptions. It takes a while to be done with one that the client has
// completed, and until then would mix it up with the next one of the same id, which the client may begin at once:
// so each is known to it by a number of its own. Invariants: what is said about a subscription that the client
// has completed goes nowhere; an id that is in use is refused. Called by websocket.

interface Message {
  readonly type?: unknown;
  readonly id?: unknown;
}

export class OperationIds {
  private readonly numbers = new Map<string, string>();
  private readonly ids = new Map<string, string>();
  private count = 0;

  /** What the client calls it. */
  idOf(number: string): string {
    return this.ids.get(number)!;
  }

  /** What to pass on of a client's message, null for nothing; throws IdInUse. */
  translateIn(text: string): string | null {
    const message = readMessage(text);
    const { type, id } = message ?? {};
    // What is no message is for graphql-ws to refuse.
    if (typeof id !== 'string' || id === '') return text;
    if (type === 'subscribe') return JSON.stringify({ ...message, id: this.begin(id) });
    if (type !== 'complete') return text;
    const number = this.numbers.get(id);
    if (number === undefined) return null;
    this.end(number);
    return JSON.stringify({ ...message, id: number });
  }

  /** What to pass on of a message to the client, null for nothing. */
  translateOut(text: string): string | null {
    const message = readMessage(text);
    if (typeof message?.id !== 'string') return text;
    const id = this.ids.get(message.id);
    if (id === undefined) return null;
    if (message.type === 'complete' || message.type === 'error') this.end(message.id);
    return JSON.stringify({ ...message, id });
  }

  private begin(id: string): string {
    if (this.numbers.has(id)) throw new IdInUse(`Subscriber for ${id} already exists`);
    this.count += 1;
    const number = String(this.count);
    this.numbers.set(id, number);
    this.ids.set(number, id);
    return number;
  }

  private end(number: string): void {
    this.numbers.delete(this.ids.get(number)!);
    this.ids.delete(number);
  }
}

export class IdInUse extends Error {}

function readMessage(text: string): Message | null {
  try {
    const message = JSON.parse(text) as unknown;
    return typeof message === 'object' && !Array.isArray(message) ? message : null;
  } catch {
    return null;
  }
}
