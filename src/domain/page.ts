// How long a page of a list may be.

export const MAX_PAGE = 100;
/** For lists of small rows: targets and events. */
export const MAX_LONG_PAGE = 1_000;
