// What is wrong with something a client gave, and where. A check collects every fault instead of stopping
// at the first, so that a person mends them all at once.

export type Path = readonly string[];

export interface Fault {
  readonly path: Path;
  readonly message: string;
}

export class FaultList {
  readonly faults: Fault[] = [];

  /** Answers null, for a reader that has nothing to return once it has found a fault. */
  add(path: Path, message: string): null {
    this.faults.push({ path, message });
    return null;
  }
}
