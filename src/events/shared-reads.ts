// Reads that many ask for at once. Invariants: whoever asks is served by a read that begins after they asked; of
// each kind one is under way at a time, and all who come meanwhile share the next. Called by run-states.

export class SharedReads<T> {
  private readonly underWay = new Map<string, Promise<T>>();
  private readonly next = new Map<string, Promise<T>>();

  read(key: string, work: () => Promise<T>): Promise<T> {
    const known = this.next.get(key);
    if (known) return known;
    const begin = (): Promise<T> => {
      this.next.delete(key);
      this.underWay.set(key, reading);
      return work();
    };
    const end = (): void => {
      if (this.underWay.get(key) === reading) this.underWay.delete(key);
    };
    const reading: Promise<T> = (this.underWay.get(key) ?? Promise.resolve()).then(begin, begin);
    this.next.set(key, reading);
    reading.then(end, end);
    return reading;
  }
}
