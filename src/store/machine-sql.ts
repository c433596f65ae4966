// The machines in SQL: the two functions that the guards ask, and the rows of state_transition. Pure text;
// the migration that carries it is written by `npm run generate`, and a test compares what a database has
// with what is rendered here.

import { listTransitions, type Machine } from '../domain/machine.js';

export function renderMachineSql(machines: readonly Machine[]): string {
  const guarded = machines.filter((machine) => machine.table !== null);
  return [
    '-- Generated from the machines in src/domain. Do not edit: change the machine, then `npm run generate`.',
    '',
    renderEventFunction(guarded),
    '',
    renderInitialFunction(guarded),
    '',
    'TRUNCATE state_transition;',
    'INSERT INTO state_transition (machine, event, from_state, to_state, actors, condition) VALUES',
    `${machines.flatMap(renderRows).join(',\n')};`,
    '',
  ].join('\n');
}

function renderEventFunction(machines: readonly Machine[]): string {
  const branches = machines.map((machine) => {
    const pairs = listTransitions(machine).map(
      ({ event, from, to }) =>
        `      WHEN from_state = ${quote(from)} AND to_state = ${quote(to)} THEN ${quote(event)}`,
    );
    return `    WHEN ${quote(machine.name)} THEN CASE\n${pairs.join('\n')}\n    END`;
  });
  return [
    '-- The event that a change of status stands for; null when the machine does not allow it.',
    'CREATE OR REPLACE FUNCTION state_event(machine text, from_state text, to_state text) RETURNS text',
    'LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$',
    '  SELECT CASE machine',
    ...branches,
    '  END',
    '$$;',
  ].join('\n');
}

function renderInitialFunction(machines: readonly Machine[]): string {
  const branches = machines.map(({ name, initial }) => `WHEN ${quote(name)} THEN ${quote(initial)}`);
  return [
    '-- The state in which a row is born.',
    'CREATE OR REPLACE FUNCTION state_initial(machine text) RETURNS text',
    'LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$',
    `  SELECT CASE machine ${branches.join(' ')} END`,
    '$$;',
  ].join('\n');
}

function renderRows(machine: Machine): string[] {
  return listTransitions(machine).map(({ event, from, to, actors, condition }) => {
    const values = [machine.name, event, from, to].map(quote).join(', ');
    return `  (${values}, ARRAY[${actors.map(quote).join(', ')}], ${quote(condition)})`;
  });
}

function quote(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}
