// Pings: somebody wants to see that an endpoint answers. Sent once; one that was cut short is sent again.

import type { Database } from './db.js';
import { ENDPOINT_FACTS, toEndpoint, type ClaimedEndpoint, type EndpointFacts } from './webhook-cursor.js';

/** Longer than any request takes. */
const LEASE = '1 minute';

/** The endpoints that are to be pinged, on or off. */
export async function claimPings(db: Database, limit: number): Promise<ClaimedEndpoint[]> {
  const rows = await db.query<{ endpoint: EndpointFacts }>(
    `UPDATE webhook_endpoint endpoint SET ping_at = clock_timestamp() + interval '${LEASE}'
     WHERE id = ANY(ARRAY(SELECT id FROM webhook_endpoint WHERE ping_at <= clock_timestamp()
       LIMIT ${limit} FOR UPDATE SKIP LOCKED))
     RETURNING ${ENDPOINT_FACTS}`,
  );
  return rows.map(({ endpoint }) => toEndpoint(endpoint));
}

/** An endpoint that has answered may be sent the rest at once. */
export async function settlePing(db: Database, id: string, error: string | null): Promise<void> {
  await db.query(
    `UPDATE webhook_endpoint SET pinged_at = clock_timestamp(), ping_error = $2,
       -- Asked for once more meanwhile: that one is still to be sent.
       ping_at = CASE WHEN ping_at <= clock_timestamp() THEN ping_at END,
       next_attempt_at = CASE WHEN $2::text IS NOT NULL THEN next_attempt_at END
     WHERE id = $1`,
    [id, error],
  );
}
