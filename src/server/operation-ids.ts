// What graphql-ws calls a client's subscriptions. It takes a while to be done with one that the client has
// completed, and until then would mix it up with the next one of the same id, which the client may begin at once:
// so each is known to it by a number of its own. Invariants: what is said about a subscription that the client
// has completed goes nowhere; an id that is in use is refused, and so is what graphql-ws would throw upon. Called by
// websocket.

interface Message {
  readonly type?: unknown;
  readonly id?: unknown;
}

/** Only a server says these. */
const OURS: readonly unknown[] = ['connection_ack', 'next', 'error'];

export class OperationIds {
  private readonly numbers = new Map<string, string>();
  private readonly ids = new Map<string, string>();
  private count = 0;

  /** What the client calls it. */
  idOf(number: string): string {
    return this.ids.get(number)!;
  }

  /** What to pass on of a client's message, null for nothing; throws ProtocolFault. */
  translateIn(text: string): string | null {
    const message = readMessage(text);
    const { type, id } = message ?? {};
    if (OURS.includes(type)) throw new ProtocolFault(4400, 'Only a server sends such a message');
    // Its payload comes back to the client.
    if (type === 'ping') return write({ ...message });
    // What is no message is for graphql-ws to refuse.
    if (typeof id !== 'string' || id === '') return text;
    if (type === 'subscribe') return write({ ...message, id: this.begin(id) });
    if (type !== 'complete') return text;
    const number = this.numbers.get(id);
    if (number === undefined) return null;
    this.end(number);
    return write({ ...message, id: number });
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
    if (this.numbers.has(id)) throw new ProtocolFault(4409, `Subscriber for ${id} already exists`);
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

/** The client broke the protocol, and is told so by a close code. */
export class ProtocolFault extends Error {
  constructor(
    readonly closeCode: number,
    message: string,
  ) {
    super(message);
  }
}

function write(message: Message): string {
  try {
    return JSON.stringify(message);
  } catch {
    // What was read a moment ago can be written, unless it is nested deeper than the stack reaches.
    throw new ProtocolFault(4400, 'The message is nested too deeply');
  }
}

function readMessage(text: string): Message | null {
  try {
    const message = JSON.parse(text) as unknown;
    return typeof message === 'object' && !Array.isArray(message) ? message : null;
  } catch {
    return null;
  }
}
