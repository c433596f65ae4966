// What a crowd that watches the same thing costs the server: one read, one execution and one serialisation for
// each change, however many they are.
import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { opsRunMachine } from '../../src/domain/ops-run.js';
import { pipelineRunMachine } from '../../src/domain/pipeline-run.js';
import { ruleRunMachine } from '../../src/domain/rule-run.js';
import { publicRunId } from '../../src/domain/run.js';
import { appendRunLines } from '../../src/store/ledger.js';
import { RawClient, type Message } from '../server/support.js';
import { ADMIN_KEY, TestApp } from '../support/app.js';
import { fire, makeRow, makeRuleRun, seedWorld, type World } from '../support/fixtures.js';

const SOCKETS = 10;
const PER_SOCKET = 20;
const CROWD = SOCKETS * PER_SOCKET;

let app: TestApp;
let world: World;
const crowd: RawClient[] = [];

beforeAll(async () => {
  app = await TestApp.start({
    RUNLEDGER_ROLE: 'api',
    RUNLEDGER_SANDBOX: 'off',
    RUNLEDGER_PROGRESS_INTERVAL_MS: '1',
  });
  world = await seedWorld(app.db);
});
afterEach(() => {
  vi.restoreAllMocks();
  for (const client of crowd.splice(0)) client.socket.close();
});
afterAll(() => app.stop());

/** Statements that this process sends to the database from now on and that fit. */
function countReads(fits: RegExp): () => number {
  let reads = 0;
  const { query } = pg.Client.prototype;
  vi.spyOn(pg.Client.prototype, 'query').mockImplementation(function (this: pg.Client, ...args: unknown[]) {
    const [first] = args as [string | { readonly text?: string }];
    if (fits.test(typeof first === 'string' ? first : (first.text ?? ''))) reads += 1;
    return Reflect.apply(query, this, args) as never;
  } as never);
  return () => reads;
}

async function readCounter(name: string): Promise<number> {
  const metrics = await (await fetch(new URL('/metrics', app.url))).text();
  return Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(metrics)![1]);
}

interface Work {
  readonly deliveries: number;
  readonly executions: number;
}

const readWork = async (): Promise<Work> => ({
  deliveries: await readCounter('runledger_deliveries_total'),
  executions: await readCounter('runledger_subscription_executions_total'),
});

async function workOf(doing: () => Promise<void>): Promise<Work> {
  const before = await readWork();
  await doing();
  const after = await readWork();
  return {
    deliveries: after.deliveries - before.deliveries,
    executions: after.executions - before.executions,
  };
}

/** Subscribes all of them, and waits until each has been sent what is there already. */
async function gather(
  query: string,
  variables: Record<string, unknown>,
  keys: readonly string[],
): Promise<void> {
  for (const key of keys) {
    for (let n = 0; n < SOCKETS / keys.length; n += 1) {
      const client = await RawClient.connect(app, { authorization: key });
      for (let id = 0; id < PER_SOCKET; id += 1) client.subscribe(String(id), query, variables);
      crowd.push(client);
    }
  }
  await untilAllHeard(() => true);
}

/** What every subscription of every client was sent that fits. */
async function untilAllHeard(fits: (message: Message) => boolean): Promise<string[]> {
  const heard = crowd.flatMap((client) =>
    Array.from({ length: PER_SOCKET }, (_, id) =>
      client.hear((message) => message.id === String(id) && message.type === 'next' && fits(message)),
    ),
  );
  return (await Promise.all(heard)).map(({ payload }) => JSON.stringify(payload));
}

const hasSeq =
  (seq: number) =>
  ({ payload }: Message): boolean =>
    JSON.stringify(payload).includes(`"seq":${seq},`);

describe('runEvents', () => {
  const EVENTS = `subscription ($runId: ID!, $after: Int) {
    runEvents(runId: $runId, after: $after) { seq type message payload createdAt } }`;
  const COMMITS = 8;
  const LINES = 3;

  async function write(runId: string): Promise<void> {
    const line = { type: 'log', level: 'INFO' as const, message: 'written', payload: { text: 'x' } };
    for (let commit = 1; commit <= COMMITS; commit += 1) {
      const lines = Array.from({ length: LINES }, () => line);
      await app.db.transaction('writer', (connection) => appendRunLines(connection, 'RULE', runId, lines));
      const shown = await untilAllHeard(hasSeq(1 + commit * LINES));
      expect(new Set(shown).size).toBe(1);
    }
  }

  test.each([
    ['alike', 1],
    ['of two roles', 2],
  ])('a crowd that is %s: one read per bell, one execution per line and role', async (_how, roles) => {
    const { id: runId } = await makeRuleRun(app.db, world.home, { targets: [] });
    const keys = [ADMIN_KEY, ...(roles === 2 ? [await app.createKey('VIEWER')] : [])];
    await gather(EVENTS, { runId, after: 0 }, keys);
    const reads = countReads(/FROM run_event\s+WHERE run_id = \$1 AND seq > \$2/);
    const work = await workOf(() => write(runId));
    expect(reads()).toBe(COMMITS);
    expect(work).toEqual({ deliveries: CROWD * COMMITS * LINES, executions: roles * COMMITS * LINES });
  });
});

describe('progress', () => {
  test.each([
    ['RULE', 'ruleRunProgress', ruleRunMachine, ['queue', 'start', 'cancel'], /^SELECT .*"rule_run"/s],
    ['PIPELINE', 'pipelineRunProgress', pipelineRunMachine, ['cancel'], /^SELECT .*run_metadata.*ANY/s],
    [
      'OPS',
      'opsRunProgress',
      opsRunMachine,
      ['claim', 'start', 'succeed'],
      /^SELECT .*FROM ops_run WHERE id = ANY/s,
    ],
  ] as const)(
    'of a %s run: one read and one execution per change',
    async (kind, field, machine, events, read) => {
      const row = await makeRow(app.db, world.home, machine);
      const query = `subscription ($runId: ID!) { ${field}(runId: $runId) { id status lastSeq } }`;
      await gather(query, { runId: publicRunId(kind, row.id) }, [ADMIN_KEY]);
      const reads = countReads(read);
      const work = await workOf(async () => {
        for (const event of events) {
          await fire(app.db, row, event);
          const status = machine.events[event as never] as { readonly to: string };
          await untilAllHeard(({ payload }) =>
            JSON.stringify(payload).includes(`"status":"${status.to.toUpperCase()}"`),
          );
        }
      });
      expect(work).toEqual({ deliveries: CROWD * events.length, executions: events.length });
      expect(reads()).toBeGreaterThanOrEqual(events.length);
      // A change may ring more than once.
      expect(reads()).toBeLessThanOrEqual(2 * events.length);
    },
  );
});

test('like boards: one read and one execution per change', async () => {
  const row = await makeRow(app.db, world.home, opsRunMachine);
  const query = `subscription ($kind: RunKind) { runChanged(kind: $kind) { id lastSeq ... on OpsRun { status } } }`;
  await gather(query, { kind: 'OPS' }, [ADMIN_KEY]);
  const reads = countReads(/^SELECT .*FROM ops_run WHERE id = ANY/s);
  const changes = [
    ['claim', 'CLAIMED'],
    ['start', 'RUNNING'],
    ['succeed', 'SUCCESS'],
  ] as const;
  const work = await workOf(async () => {
    for (const [event, status] of changes) {
      await fire(app.db, row, event);
      const shown = await untilAllHeard(({ payload }) =>
        JSON.stringify(payload).includes(`"status":"${status}"`),
      );
      expect(new Set(shown).size).toBe(1);
    }
  });
  expect(work).toEqual({ deliveries: CROWD * changes.length, executions: changes.length });
  expect(reads()).toBeGreaterThanOrEqual(changes.length);
  // A change may ring more than once.
  expect(reads()).toBeLessThanOrEqual(2 * changes.length);
});
