// A run with some targets of each kind that the sandbox knows among many plain ones, and what must have
// become of them.
import { expect } from 'vitest';
import type { Database } from '../../src/store/db.js';
import { request, until } from '../support/app.js';
import { expectInvariants } from '../store/invariants.js';

const MAX_ATTEMPTS = 3;

export interface Mix {
  readonly total: number;
  /** Targets of each kind of fault. */
  readonly ofEachFault: number;
  /** Of those whose calls hang: each costs a call's whole time, three times over. */
  readonly hanging: number;
}

export const THOUSAND: Mix = { total: 1_000, ofEachFault: 3, hanging: 3 };

interface Fate {
  readonly status: 'APPLIED' | 'FAILED';
  /** When no worker dies on the way. */
  readonly attempts: number;
  readonly errorCode: string | null;
}

const applied = (attempts: number): Fate => ({ status: 'APPLIED', attempts, errorCode: null });
const failed = (attempts: number, errorCode: string): Fate => ({ status: 'FAILED', attempts, errorCode });

/** By the prefix of the external id. */
const FATES: Readonly<Record<string, Fate>> = {
  plain: applied(1),
  drift: applied(1),
  flaky1: applied(2),
  flaky2: applied(3),
  throttle: applied(2),
  // More faults than calls, also when a killed worker's calls cost no attempt.
  flaky9: failed(MAX_ATTEMPTS, 'UPSTREAM'),
  down: failed(MAX_ATTEMPTS, 'UPSTREAM'),
  hang: failed(MAX_ATTEMPTS, 'TIMEOUT'),
  fail: failed(1, 'INVALID'),
  auth: failed(1, 'AUTH'),
};

const prefixOf = (externalId: string): string => externalId.slice(0, externalId.indexOf('-'));
export const fateOf = (externalId: string): Fate => FATES[prefixOf(externalId)]!;

/** Shuffled by a fixed rule, so that faults stand anywhere among the plain ones and every run is alike. */
function externalIds({ total, ofEachFault, hanging }: Mix): string[] {
  const faulty = Object.keys(FATES)
    .filter((prefix) => prefix !== 'plain')
    .flatMap((prefix) => {
      const length = prefix === 'hang' ? hanging : ofEachFault;
      return Array.from({ length }, (_, index) => `${prefix}-${index}`);
    });
  const plain = Array.from({ length: total - faulty.length }, (_, index) => `plain-${index}`);
  const step = Math.floor(plain.length / faulty.length);
  return plain.flatMap((id, index) => (index % step === 0 ? [id, ...faulty.splice(0, 1)] : [id]));
}

export async function queueMix(url: string, mix: Mix): Promise<string> {
  const channels = await request(url, '{ channels { id name } }');
  const [channel] = channels.data.channels.filter(({ name }: { name: string }) => name === 'sandbox');
  const created = await request(url, CREATE, {
    input: {
      channelId: channel.id,
      targets: externalIds(mix).map((externalId, index) => ({
        externalId,
        before: { unit_amount: 1_000 + index, currency: 'EUR' },
        after: { unit_amount: 900 + index, currency: 'EUR' },
      })),
    },
  });
  const { ruleRun, userErrors } = created.data.createRuleRun;
  expect(userErrors).toEqual([]);
  expect(ruleRun).toMatchObject({ status: 'PREVIEW', counts: { total: mix.total, preview: mix.total } });
  const queued = await request(url, QUEUE, { input: { runId: ruleRun.id } });
  expect(queued.data.queueRuleRun.userErrors).toEqual([]);
  return ruleRun.id as string;
}

const CREATE = `mutation ($input: CreateRuleRunInput!) {
  createRuleRun(input: $input) {
    ruleRun { id status counts { total preview } } userErrors { code message field }
  }
}`;
const QUEUE = `mutation ($input: RuleRunInput!) {
  queueRuleRun(input: $input) { ruleRun { status } userErrors { code message } }
}`;
const STATUS = 'query ($id: ID!) { ruleRun(id: $id) { status counts { applied failed } progress } }';

// eslint-disable-next-line @typescript-eslint/no-explicit-any
export async function readRun(url: string, id: string): Promise<any> {
  return (await request(url, STATUS, { id })).data.ruleRun;
}

export function waitForEnd(url: string, id: string): Promise<unknown> {
  return until(
    () => readRun(url, id),
    ({ status }) => !['QUEUED', 'APPLYING'].includes(status as string),
  );
}

/** The state, counts and errors that the run must have ended with, and a ledger that tells the same. */
export async function expectRightEnd(db: Database, url: string, id: string, mix: Mix): Promise<void> {
  const ids = externalIds(mix);
  const rows = await db.query<{ external_id: string; status: string; error_code: string | null }>(
    'SELECT external_id, status, error_code FROM rule_target WHERE run_id = $1',
    [id],
  );
  const seen = rows.map((row) => [row.external_id, row.status, row.error_code]).sort();
  const wanted = ids.map((each) => [each, fateOf(each).status, fateOf(each).errorCode]).sort();
  expect(seen).toEqual(wanted);
  const dead = ids.filter((externalId) => fateOf(externalId).status === 'FAILED').length;
  expect(await readRun(url, id)).toEqual({
    status: 'PARTIAL',
    counts: { applied: mix.total - dead, failed: dead },
    progress: 1,
  });
  await expectInvariants(db, id);
  expect(await appliedTwice(db, id)).toEqual([]);
}

async function appliedTwice(db: Database, runId: string): Promise<unknown[]> {
  return db.query(
    `SELECT target_id FROM run_event WHERE run_id = $1 AND type = 'rule_target.succeed'
     GROUP BY target_id HAVING count(*) > 1`,
    [runId],
  );
}
