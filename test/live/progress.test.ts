// Progress of each kind of run, and the board, through the server: the state now, not too often, never an older
// one, and always the last.
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { Machine } from '../../src/domain/machine.js';
import { opsRunMachine } from '../../src/domain/ops-run.js';
import { pipelineRunMachine } from '../../src/domain/pipeline-run.js';
import { ruleRunMachine } from '../../src/domain/rule-run.js';
import { publicRunId, type RunKind } from '../../src/domain/run.js';
import { appendRunLines } from '../../src/store/ledger.js';
import { fireEvent } from '../../src/store/transition.js';
import { ApiClient } from '../api/support.js';
import { ADMIN_KEY, startApp, TestApp, until } from '../support/app.js';
import { makeRowIn, neededColumns, seedWorld, type MachineRow, type World } from '../support/fixtures.js';
import type { App } from '../../src/app.js';

/** Far more than a change takes, so that many fall into one. */
const INTERVAL_MS = 150;

let app: TestApp;
/** The same, with an interval that no test waits out. */
let slow: App;
let world: World;
const clients: ApiClient[] = [];

beforeAll(async () => {
  const settings = { RUNLEDGER_ROLE: 'api', RUNLEDGER_SANDBOX: 'off' };
  app = await TestApp.start({ ...settings, RUNLEDGER_PROGRESS_INTERVAL_MS: String(INTERVAL_MS) });
  slow = await startApp(app.database.url, { ...settings, RUNLEDGER_PROGRESS_INTERVAL_MS: '60000' });
  world = await seedWorld(app.db);
});
afterEach(() => Promise.all(clients.splice(0).map((client) => client.close())));
afterAll(async () => {
  await slow.stop();
  await app.stop();
});

interface State {
  readonly id: string;
  readonly lastSeq: number;
  readonly status: string;
}

interface Kind {
  readonly kind: RunKind;
  readonly machine: Machine;
  readonly field: string;
  /** A state in which lines can be added to its ledger. */
  readonly begun: string;
  /** From there to one that ends it. */
  readonly events: readonly string[];
  readonly final: string;
}

const KINDS: readonly Kind[] = [
  {
    kind: 'RULE',
    machine: ruleRunMachine,
    field: 'ruleRunProgress',
    begun: 'PREVIEW',
    events: ['queue', 'start', 'complete', 'roll_back'],
    final: 'ROLLED_BACK',
  },
  {
    kind: 'PIPELINE',
    machine: pipelineRunMachine,
    field: 'pipelineRunProgress',
    begun: 'CREATED',
    events: ['cancel'],
    final: 'CANCELLED',
  },
  {
    kind: 'OPS',
    machine: opsRunMachine,
    field: 'opsRunProgress',
    begun: 'running',
    events: ['succeed'],
    final: 'SUCCESS',
  },
];

async function* statesOf(
  url: string,
  query: string,
  variables: Record<string, unknown>,
): AsyncGenerator<State> {
  const client = new ApiClient(url, ADMIN_KEY);
  clients.push(client);
  for await (const { data, errors } of client.stream<Record<string, State>>(query, variables)) {
    if (errors) throw new Error(JSON.stringify(errors));
    const [state] = Object.values(data!);
    yield state!;
  }
}

const progressOf = ({ kind, field }: Kind, row: MachineRow, url = app.url): AsyncGenerator<State> =>
  statesOf(url, `subscription ($runId: ID!) { ${field}(runId: $runId) { id lastSeq status } }`, {
    runId: publicRunId(kind, row.id),
  });

const boardOf = ({ kind }: Kind, url = app.url): AsyncGenerator<State> =>
  statesOf(
    url,
    `subscription ($kind: RunKind) { runChanged(kind: $kind) { id lastSeq
       ... on RuleRun { status } ... on PipelineRun { pipeline: status } ... on OpsRun { ops: status } } }`,
    { kind },
  );

async function take(states: AsyncGenerator<State>): Promise<State> {
  return (await states.next()).value as State;
}

const newRun = ({ machine, begun }: Kind): Promise<MachineRow> =>
  makeRowIn(app.db, world.home, machine, begun);

/** Lines that change nothing but the ledger, one transaction each. No two alike: an ops run keeps the first of those. */
async function touch({ kind }: Kind, row: MachineRow, times: number): Promise<void> {
  for (let n = 0; n < times; n += 1) {
    const line = { type: 'log', level: 'INFO' as const, message: `touched ${n}`, payload: {} };
    if (kind === 'OPS')
      await app.db.query("SELECT ops.append_event($1, 'info', $2)", [`run-${row.id}`, line.message]);
    else await app.db.transaction('writer', (connection) => appendRunLines(connection, kind, row.id, [line]));
  }
}

/** All steps to the end in one transaction: in the same instant, for whoever looks. */
async function finish({ machine, events }: Kind, { id, tenantId }: MachineRow): Promise<void> {
  await app.db.transaction('test', async (connection) => {
    for (const event of events) {
      const set = neededColumns(machine, machine.events[event]!.to);
      await fireEvent(connection, { machine, tenantId, id, event, set });
    }
  });
}

async function lastSeqOf(row: MachineRow): Promise<number> {
  const [found] = await app.db.query<{ seq: number }>(
    'SELECT max(seq)::int AS seq FROM run_event WHERE run_id = $1',
    [row.id],
  );
  return found!.seq;
}

function expectRising(states: readonly State[]): void {
  const seqs = states.map(({ lastSeq }) => lastSeq);
  expect(seqs).toEqual([...new Set(seqs)].sort((a, b) => a - b));
}

describe.each(KINDS)('$field', (kind) => {
  test('shows the state at once', async () => {
    const row = await newRun(kind);
    const state = await take(progressOf(kind, row));
    expect(state).toMatchObject({ id: publicRunId(kind.kind, row.id), lastSeq: await lastSeqOf(row) });
  });

  test('shows a crowd of changes in few states, each newer than the one before, and the last', async () => {
    const row = await newRun(kind);
    const states = progressOf(kind, row);
    const seen = [await take(states)];
    const began = performance.now();
    const writing = touch(kind, row, 200).then(() => finish(kind, row));
    while (seen.at(-1)!.status !== kind.final) seen.push(await take(states));
    await writing;
    // One per interval, and one that its beginning may add.
    expect(seen.length - 1).toBeLessThanOrEqual((performance.now() - began) / INTERVAL_MS + 1);
    expectRising(seen);
    expect(seen.at(-1)!.lastSeq).toBe(await lastSeqOf(row));
  });

  test('shows the final state also when it comes in the same instant as the one before', async () => {
    const rows = await Promise.all(Array.from({ length: 10 }, () => newRun(kind)));
    const watching = rows.map(async (row) => {
      const states = progressOf(kind, row);
      const seen = [await take(states)];
      await touch(kind, row, 1);
      await finish(kind, row);
      while (seen.at(-1)!.status !== kind.final) seen.push(await take(states));
      return { row, seen };
    });
    for (const { row, seen } of await Promise.all(watching)) {
      expectRising(seen);
      expect(seen.at(-1)!.lastSeq).toBe(await lastSeqOf(row));
    }
  });

  test('shows one state per interval, as it is configured', async () => {
    const row = await newRun(kind);
    const states = progressOf(kind, row, slow.url!);
    await take(states);
    // Another server shows the change; this one will in a minute.
    const elsewhere = progressOf(kind, row);
    await take(elsewhere);
    const next = Promise.race([take(states), finish(kind, row).then(() => untilShown(elsewhere))]);
    expect(await next).toBe('shown elsewhere');
  });

  async function untilShown(states: AsyncGenerator<State>): Promise<string> {
    while ((await take(states)).status !== kind.final);
    return 'shown elsewhere';
  }
});

describe.each(KINDS)('runChanged of $kind runs', (kind) => {
  /** A board that is known to have begun, and a run that it has been shown. */
  async function startBoard(): Promise<{ board: AsyncGenerator<State>; row: MachineRow; first: State }> {
    const board = boardOf(kind);
    const shown = take(board);
    let heard = false;
    void shown.then(() => (heard = true));
    await until(
      () => newRun(kind),
      () => heard,
    );
    const row = await newRun(kind);
    let first = await shown;
    while (first.id !== publicRunId(kind.kind, row.id)) first = await take(board);
    return { board, row, first };
  }

  test('shows a crowd of changes in few states, each newer than the one before, and the last', async () => {
    const { board, row, first } = await startBoard();
    const seen = [first];
    const began = performance.now();
    await touch(kind, row, 200);
    await finish(kind, row);
    const last = await lastSeqOf(row);
    while (seen.at(-1)!.lastSeq < last) {
      const state = await take(board);
      if (state.id === first.id) seen.push(state);
    }
    expect(seen.length - 1).toBeLessThanOrEqual((performance.now() - began) / INTERVAL_MS + 1);
    expectRising(seen);
  });

  test('shows the final state also when it comes in the same instant as the one before', async () => {
    const { board, row, first } = await startBoard();
    await touch(kind, row, 1);
    await finish(kind, row);
    const last = await lastSeqOf(row);
    for (let state = first; state.id !== first.id || state.lastSeq < last;) state = await take(board);
  });
});
