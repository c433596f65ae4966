// Firing an event at one row of a machine's table. The machine is asked first, so that a refusal can say
// what would be allowed; the database's guard then checks the same pair again, whoever writes.

import { AppError } from '../errors.js';
import { allowedEvents, nextState, type Machine } from '../domain/machine.js';
import type { Connection } from './db.js';

/** The row's own key: a run's table may name it differently. */
const KEY_COLUMNS: Readonly<Record<string, string>> = { run_metadata: 'run_id' };

export interface EventRequest<State extends string, Event extends string> {
  readonly machine: Machine<State, Event>;
  readonly tenantId: string;
  readonly id: string;
  readonly event: Event;
  /** Further columns to set in the same UPDATE. */
  readonly set?: Readonly<Record<string, unknown>>;
}

/**
 * Locks the row, checks the event against its state, moves it; answers the state it was in. The caller has
 * taken the run's lock first when the row belongs to a run.
 */
export async function fireEvent<State extends string, Event extends string>(
  connection: Connection,
  { machine, tenantId, id, event, set = {} }: EventRequest<State, Event>,
): Promise<State> {
  const table = machine.table;
  if (table === null) throw new Error(`machine ${machine.name} has no table`);
  const key = KEY_COLUMNS[table] ?? 'id';
  const { rows } = await connection.query<{ status: State }>(
    `SELECT status FROM ${table} WHERE ${key} = $1 AND tenant_id = $2 FOR NO KEY UPDATE`,
    [id, tenantId],
  );
  const row = rows[0];
  if (!row) throw notFound(machine.title, id);
  const to = requireNext(machine, row.status, event, { field: ['input', 'runId'] });
  const columns = Object.keys(set).map((column, index) => `, ${column} = $${index + 3}`);
  await connection.query(`UPDATE ${table} SET status = $2${columns.join('')} WHERE ${key} = $1`, [
    id,
    to,
    ...Object.values(set),
  ]);
  return row.status;
}

export function requireNext<State extends string, Event extends string>(
  machine: Machine<State, Event>,
  from: State,
  event: Event,
  place: { readonly field?: readonly string[]; readonly details?: object } = {},
): State {
  const to = nextState(machine, from, event);
  if (to) return to;
  const allowed = allowedEvents(machine, from);
  const instead = allowed.length > 0 ? `allowed now: ${allowed.join(', ')}` : 'it is final';
  throw new AppError('ILLEGAL_TRANSITION', `${machine.title}: cannot ${event} while ${from} (${instead})`, {
    ...(place.field ? { field: place.field } : {}),
    // States are upper case wherever clients see them.
    details: { machine: machine.name, event, from: from.toUpperCase(), allowed, ...place.details },
  });
}

export function notFound(what: string, id: string, field?: readonly string[]): AppError {
  return new AppError('NOT_FOUND', `${what} ${id} was not found.`, field ? { field } : {});
}
