// The machines as a document for people: a diagram and a table each. Pure text; `npm run generate` writes it
// to docs/state-machines.md.

import { listTransitions, type Machine } from './machine.js';

export function renderMachineDocument(machines: readonly Machine[]): string {
  return [
    '# State machines',
    '',
    'Generated from the machines in src/domain. Do not edit: change the machine, then `npm run generate`.',
    'A change of status that is not in these tables is refused by the database itself; each one that happens is',
    'a line of the ledger, typed `machine.event`.',
    '',
    ...machines.flatMap(renderMachine),
  ].join('\n');
}

function renderMachine(machine: Machine): string[] {
  const { name, title, table } = machine;
  const kept = table === null ? 'walked by each worker in its process' : `kept in \`${table}.status\``;
  return [
    `## ${title}`,
    '',
    `\`${name}\`, ${kept}.`,
    '',
    ...renderDiagram(machine),
    '',
    '| event | from | to | actor | condition |',
    '| --- | --- | --- | --- | --- |',
    ...listTransitions(machine).map(
      ({ event, from, to, actors, condition }) =>
        `| \`${event}\` | ${from} | ${to} | ${actors.join(', ')} | ${condition.replaceAll('|', '\\|')} |`,
    ),
    '',
  ];
}

function renderDiagram(machine: Machine): string[] {
  const steps = listTransitions(machine).map(({ event, from, to }) => `    ${from} --> ${to} : ${event}`);
  return [
    '```mermaid',
    'stateDiagram-v2',
    `    [*] --> ${machine.initial}`,
    ...steps,
    ...machine.finalStates.map((state) => `    ${state} --> [*]`),
    '```',
  ];
}
