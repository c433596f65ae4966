// The supplier's GraphQL operations, and the shapes of their answers.

import { z } from 'zod';
import type { PriceRange } from '../heatmap.js';

export const AUTHENTICATE = `query Authenticate($username: String!, $password: String!) {
  authenticate { username_and_password(username: $username, password: $password) { token } }
}`;

export const COUNT = `query CountStones($token: String!, $query: DiamondQuery!) {
  as(token: $token) { diamonds_by_query_count(query: $query) }
}`;

// Counted in the same call, so that page and count are of one moment. By the time of creation: an order by
// price or time of change would move records between pages while they are read. So is the stone before the page, by
// which one sees that the list has moved; as a field of its own, lest a longer page than was asked for be refused.
export const PAGE = `query ReadStones(
  $token: String!, $query: DiamondQuery!, $offset: Int!, $limit: Int!, $before: Int!, $hasBefore: Boolean!
) {
  as(token: $token) {
    diamonds_by_query_count(query: $query)
    diamonds_by_query(query: $query, offset: $offset, limit: $limit, order: { type: createdAt, direction: ASC }) {
      items {
        id price currency discount updated_at
        diamond {
          id image video availability
          certificate { id lab shape certNumber cut carats color clarity polish symmetry }
        }
      }
    }
    before: diamonds_by_query(
      query: $query, offset: $before, limit: 1, order: { type: createdAt, direction: ASC }
    ) @include(if: $hasBefore) {
      items { diamond { id } }
    }
  }
}`;

export const AUTHENTICATED = z.object({
  authenticate: z.object({ username_and_password: z.object({ token: z.string() }) }),
});

export const COUNTED = z.object({ as: z.object({ diamonds_by_query_count: z.int().min(0) }) });

export const PAGED = z.object({
  as: z.object({
    diamonds_by_query_count: z.int().min(0),
    diamonds_by_query: z.object({ items: z.array(z.unknown()) }),
    // A page without it is a page all the same.
    before: z
      .object({ items: z.array(z.unknown()) })
      .nullish()
      .catch(null),
  }),
});

/** Range in cents, filter in dollars. */
export function toQuery({ min, max }: PriceRange, since: Date | null) {
  return {
    dollar_value: { from: min / 100, ...(max === null ? {} : { to: max / 100 }) },
    ...(since === null ? {} : { updated_at: { from: since.toISOString() } }),
  };
}
