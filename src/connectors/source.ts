// The port to a supplier's feed. Owns the words in which the runner and any connector talk about reading
// one: it is planned once into ranges, and each range is read page by page, from an offset that the
// database keeps. Knows no technology; one folder beside this file per technology implements it.

/** A part of the feed, in the connector's own words; stored as JSON between the plan and the pages. */
export type Range = Readonly<Record<string, string | number | boolean | null>>;

export interface PlannedRange {
  readonly range: Range;
  /** As counted when it was planned; null when the source does not count. */
  readonly totalRecords: number | null;
  /** What `Page.counted` would have been then, when that is another number. */
  readonly counted?: number;
  /** So many positions before its first belong to the ranges before it, and can be read from it as well. */
  readonly lead?: number;
}

export interface Plan {
  readonly kind: 'planned';
  /**
   * When the plan began, on the source's clock where that is behind ours. Whatever changes after it may or
   * may not be seen by this run, and must be by the next: it is the watermark that the run leaves.
   */
  readonly beganAt: Date;
  /** Together the whole feed (or all of it that changed), about equal in size. Empty: there is nothing. */
  readonly ranges: readonly PlannedRange[];
}

export interface PageRequest {
  readonly range: Range;
  /** The position in the range at which it begins; below 0 by up to its lead, when records moved there. */
  readonly offset: number;
  /** What the page before gave along, for sources that cannot jump to an offset. */
  readonly cursor: string | null;
  readonly limit: number;
  /** Only what changed at or after this instant; null: everything. */
  readonly since: Date | null;
}

export interface Page {
  readonly kind: 'page';
  readonly records: readonly FeedRecord[];
  /** How many records of the range it went past: more than it has when some did not change since. */
  readonly passed: number;
  readonly cursor: string | null;
  /** Nothing follows it. */
  readonly isLast: boolean;
  /** How many records the range has right now, when the source says so with the page. */
  readonly totalRecords: number | null;
  /**
   * How many records there are right now in whatever its offsets count through. When it falls, those behind the
   * ones that are gone have moved to lower offsets. Null when that cannot be told, or cannot happen.
   */
  readonly counted: number | null;
  /** The same as another page's when the records are; null of what stays as it is, as a file. */
  readonly fingerprint: string | null;
  /**
   * The id of the record that stood right before the page when it was made: one that was not read tells that records
   * went away before it. Null or left out when that is not known.
   */
  readonly before?: string | null;
}

/** A record under its own id, or what there is of one that cannot be kept, and why. `json` can be stored. */
export type FeedRecord =
  | { readonly externalId: string; readonly json: string; readonly reason?: never }
  | { readonly externalId: string | null; readonly json: string; readonly reason: string };

export type SourceFailure =
  | {
      readonly kind: 'transient';
      readonly message: string;
      /** The source refused because of how often it was asked. */
      readonly throttled: boolean;
      /** Only when the source named a delay itself. */
      readonly retryAfterMs?: number;
    }
  | { readonly kind: 'permanent'; readonly message: string };

/** What the catalog keeps of a record. Amounts are minor units of `currency`. */
export interface MappedItem {
  readonly title: string;
  readonly unitAmount: number;
  readonly costAmount: number;
  readonly currency: string;
  readonly attributes: Readonly<Record<string, unknown>>;
}

export interface Source {
  /** Never throws for a failure of the source: that is an outcome. Rejects when `signal` aborts. */
  plan(since: Date | null, signal: AbortSignal): Promise<Plan | SourceFailure>;

  fetchPage(request: PageRequest, signal: AbortSignal): Promise<Page | SourceFailure>;

  /** Pure. A record that is no item of the catalog is answered with the reason. */
  mapRecord(payload: unknown): MappedItem | { readonly reason: string };

  /** Lets go of what is open between pages. */
  close(): void;
}
