// The connectors that this process has open, one instance per channel or source and version of its
// configuration: an instance remembers what it learnt of the other side. The oldest gives way.

const MAX_OPEN = 1_000;

interface Entry<Opened> {
  readonly version: string;
  readonly opened: Opened;
}

export class ConnectorCache<Opened> {
  readonly #open: (id: string) => Promise<Opened>;
  readonly #close: (opened: Opened) => void;
  readonly #entries = new Map<string, Entry<Opened>>();

  /** `open` throws INVALID_INPUT when the configuration cannot be used. */
  constructor(open: (id: string) => Promise<Opened>, close: (opened: Opened) => void = () => {}) {
    this.#open = open;
    this.#close = close;
  }

  async get(id: string, version: string): Promise<Opened> {
    const known = this.#entries.get(id);
    if (known?.version === version) return known.opened;
    const opened = await this.#open(id);
    this.#forget(id);
    this.#entries.set(id, { version, opened });
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size <= MAX_OPEN) break;
      this.#forget(oldest);
    }
    return opened;
  }

  #forget(id: string): void {
    const entry = this.#entries.get(id);
    this.#entries.delete(id);
    if (entry) this.#close(entry.opened);
  }
}
