// Settling a page: its records, the partition's offset and its end in one transaction, fenced by the lease and
// by a compare-and-swap of the offset. Whatever was interrupted is repeated whole; whatever comes twice is
// skipped, and says so. Lock order: the run's row, then its partition's.

import { failureText } from '../domain/partition.js';
import {
  judgeEnd,
  positionOf,
  type PartitionEnd,
  type RangeCount,
  type Reading,
} from '../domain/partition-reading.js';
import type { Connection, Database } from './db.js';
import { appendRunLines } from './ledger.js';
import { HELD, keyOf, NO_LEASE, type PageClaim } from './partition-claim.js';
import { lockPipelineRun, rollUpPartitions } from './pipeline-roll-up.js';
import { bind, prepared } from './prepared.js';
import { noteSeen, noteTwice, writeRawItems, type RawRecord } from './raw-item.js';
import { writeRejected, type RejectedRecord } from './rejected-record.js';

export interface ReadPage {
  readonly records: readonly RawRecord[];
  readonly rejected: readonly RejectedRecord[];
  /** How many records of the range it went past. */
  readonly passed: number;
  readonly cursor: string | null;
  readonly isLast: boolean;
  readonly range: RangeCount;
  /** What is known after it. */
  readonly reading: Reading;
  /** So many of its records were to be expected twice. */
  readonly expectedTwice: number;
}

/** `skipped`: its offset is not the partition's any more. `late`: another worker has the lease by now. */
export type PageResult = 'settled' | 'skipped' | 'late' | 'stopped';

/** The compare-and-swap did not go through. */
class PageRefused extends Error {}

/** `ring` tells those who watch the run; the last page always does. */
export async function settlePage(
  db: Database,
  claim: PageClaim,
  page: ReadPage,
  { ring }: { readonly ring: boolean },
): Promise<PageResult> {
  try {
    await db.transaction(claim.workerId, (connection) => keepPage(connection, claim, page, ring));
    return 'settled';
  } catch (error) {
    if (!(error instanceof PageRefused)) throw error;
    // In a transaction of its own. The other holds the partition, even one that is not its own any more: an UPDATE
    // that waits for a row locks it before it looks again whether it still fits. And this one begins with the run.
    return db.transaction(claim.workerId, (connection) => explainRefusal(connection, claim));
  }
}

async function keepPage(
  connection: Connection,
  claim: PageClaim,
  page: ReadPage,
  ring: boolean,
): Promise<void> {
  if (page.isLast) await lockPipelineRun(connection, claim.runId);
  await moveOffset(connection, claim, claim.offset + page.passed, page.isLast);
  // Of what comes twice, what was to be expected comes first.
  const again = (await writeRawItems(connection, claim, page.records)).slice(page.expectedTwice);
  const listedTwice = page.reading.listedTwice + (await noteTwice(connection, claim, again));
  await noteSeen(connection, claim, page.rejected);
  await writeRejected(connection, claim, claim.partitionId, page.rejected);
  const end = page.isLast
    ? judgeEnd({
        position: positionOf(claim) + page.passed,
        duplicated: claim.duplicated + again.length,
        listedTwice,
        ...page.range,
      })
    : null;
  const reading = { ...page.reading, listedTwice };
  await movePartition(connection, claim, { ...page, reading }, { duplicated: again.length, end });
  if (end) await endPartition(connection, claim, end, listedTwice);
  else if (ring) await ringProgress(connection, claim);
}

const MOVE_OFFSET = prepared(
  'move_offset',
  `UPDATE partition_progress AS progress
   SET next_offset = $4, completed = $5, updated_at = clock_timestamp()
   FROM (
     SELECT part.run_id, part.partition_id FROM worker_runs part JOIN run_metadata run USING (run_id)
     WHERE part.id = $1 AND part.lease_owner = $2 AND part.lease_epoch = $3
       AND part.status = 'running' AND run.status = 'WORKERS_RUNNING'
     FOR NO KEY UPDATE OF part
   ) held
   WHERE progress.run_id = held.run_id AND progress.partition_id = held.partition_id
     AND progress.next_offset = $6 AND NOT progress.completed`,
);

/** The compare-and-swap. Holds the partition's lock from here on. */
async function moveOffset(
  connection: Connection,
  claim: PageClaim,
  nextOffset: number,
  completed: boolean,
): Promise<void> {
  const values = [...keyOf(claim), nextOffset, completed, claim.offset];
  const { rowCount } = await connection.query(bind(MOVE_OFFSET, values));
  if (rowCount === 0) throw new PageRefused();
}

async function explainRefusal(
  connection: Connection,
  claim: PageClaim,
): Promise<Exclude<PageResult, 'settled'>> {
  const { runId, partitionId, offset } = claim;
  const status = await lockPipelineRun(connection, runId);
  // Nobody could ever read on where the progress is complete and the partition is not.
  const isOver = status === 'WORKERS_RUNNING' && (await isProgressComplete(connection, claim));
  const move = isOver
    ? `status = 'failed', error_message = 'its progress was completed by somebody else'`
    : `${NO_LEASE}, attempts = 0`;
  const released = await connection.query(`UPDATE worker_runs SET ${move} WHERE ${HELD}`, keyOf(claim));
  const payload = { partitionId, offset, epoch: claim.epoch };
  const tell = (type: string, message: string): Promise<void> =>
    appendRunLines(connection, 'PIPELINE', runId, [{ type, level: 'WARN', message, payload }]);
  // A run that was stopped meanwhile keeps nothing of the page, and has no leases.
  if (status === 'CANCELLED') return 'stopped';
  if (released.rowCount === 0) {
    await tell(
      'partition.late_result',
      `${claim.workerId} lost its claim before it could settle ${at(claim)}`,
    );
    return 'late';
  }
  await tell('partition.skip_page', `${at(claim)} was settled before: skipped`);
  if (isOver) {
    await reopenProgress(connection, claim);
    await rollUpPartitions(connection, runId);
  }
  return 'skipped';
}

async function isProgressComplete(
  connection: Connection,
  { runId, partitionId }: PageClaim,
): Promise<boolean> {
  const { rowCount } = await connection.query(
    'SELECT 1 FROM partition_progress WHERE run_id = $1 AND partition_id = $2 AND completed',
    [runId, partitionId],
  );
  return rowCount === 1;
}

/** However it came to its end: what failed is not completed, and can be read again. */
async function reopenProgress(connection: Connection, { runId, partitionId }: PageClaim): Promise<void> {
  await connection.query(
    'UPDATE partition_progress SET completed = false WHERE run_id = $1 AND partition_id = $2',
    [runId, partitionId],
  );
}

function at({ partitionId, offset }: PageClaim): string {
  return `offset ${offset} of ${partitionId}`;
}

const MOVE_PARTITION = prepared(
  'move_partition',
  `UPDATE worker_runs SET ${NO_LEASE}, attempts = 0, status = $4, error_message = $5, page_cursor = $6,
     records_processed = records_processed + $7, records_rejected = records_rejected + $8,
     records_duplicated = records_duplicated + $9, records_missing = $10, reading = $11
   WHERE ${HELD}`,
);

async function movePartition(
  connection: Connection,
  claim: PageClaim,
  { records, rejected, cursor, reading }: ReadPage,
  { duplicated, end }: { readonly duplicated: number; readonly end: PartitionEnd | null },
): Promise<void> {
  const status = end === null ? 'running' : end.fault === null ? 'completed' : 'failed';
  await connection.query(
    bind(MOVE_PARTITION, [
      ...keyOf(claim),
      status,
      end?.fault ?? null,
      cursor,
      records.length + rejected.length,
      rejected.length,
      duplicated,
      end?.missing ?? 0,
      JSON.stringify(end === null ? reading : { ...reading, lacking: end.lacking }),
    ]),
  );
}

async function endPartition(
  connection: Connection,
  claim: PageClaim,
  { missing, fault }: PartitionEnd,
  listedTwice: number,
): Promise<void> {
  const { runId, partitionId } = claim;
  if (listedTwice > 0) {
    const message = `${listedTwice} records of ${partitionId} came twice, as they did when they were last read: the source lists them so`;
    await appendRunLines(connection, 'PIPELINE', runId, [
      {
        type: 'partition.listed_twice',
        level: 'INFO',
        message,
        payload: { partitionId, records: listedTwice },
      },
    ]);
  }
  if (fault !== null) await reopenProgress(connection, claim);
  else if (missing > 0) {
    const message = `${missing} records that the source counted in ${partitionId} never came`;
    await appendRunLines(connection, 'PIPELINE', runId, [
      { type: 'partition.shortfall', level: 'WARN', message, payload: { partitionId, missing } },
    ]);
  }
  await rollUpPartitions(connection, runId);
}

async function ringProgress(connection: Connection, { runId }: PageClaim): Promise<void> {
  await connection.query(
    `SELECT ring_bell('PIPELINE', run_id, last_seq, tenant_id) FROM run_metadata WHERE run_id = $1`,
    [runId],
  );
}

/** Locks the run, and answers whether it is still being read; the page of one that has ended is only let go. */
async function lockIfRead(connection: Connection, claim: PageClaim): Promise<boolean> {
  if ((await lockPipelineRun(connection, claim.runId)) === 'WORKERS_RUNNING') return true;
  await connection.query(`UPDATE worker_runs SET ${NO_LEASE} WHERE ${HELD}`, keyOf(claim));
  return false;
}

/** Goes back by so many positions instead of keeping the page; false when the claim was lost. */
export function retreat(
  db: Database,
  claim: PageClaim,
  { by, reading, reason }: { readonly by: number; readonly reading: Reading; readonly reason: string },
): Promise<boolean> {
  return db.transaction(claim.workerId, async (connection) => {
    if (!(await lockIfRead(connection, claim))) return false;
    const { rowCount } = await connection.query(
      `UPDATE worker_runs SET ${NO_LEASE}, attempts = 0, reading = $4 WHERE ${HELD}`,
      [...keyOf(claim), JSON.stringify(reading)],
    );
    if (rowCount === 0) return false;
    const { partitionId } = claim;
    const { counted } = reading;
    const position = positionOf(claim);
    const message = `${reason}: ${partitionId} goes back by ${by}, lest one be passed over`;
    await appendRunLines(connection, 'PIPELINE', claim.runId, [
      { type: 'partition.go_back', level: 'WARN', message, payload: { partitionId, position, by, counted } },
    ]);
    return true;
  });
}

/** The page is delivered again after the delay; false when the claim was lost. */
export function retryPage(
  db: Database,
  claim: PageClaim,
  { message, delayMs }: { readonly message: string; readonly delayMs: number },
): Promise<boolean> {
  const error = failureText(message);
  return db.transaction(claim.workerId, async (connection) => {
    if (!(await lockIfRead(connection, claim))) return false;
    const { rowCount } = await connection.query(
      `UPDATE worker_runs SET ${NO_LEASE}, error_message = $4,
         next_attempt_at = clock_timestamp() + $5 * interval '1 millisecond' WHERE ${HELD}`,
      [...keyOf(claim), error, delayMs],
    );
    if (rowCount === 0) return false;
    const { partitionId, offset, attempts: attempt } = claim;
    const payload = { partitionId, offset, attempt, delayMs, error };
    await appendRunLines(connection, 'PIPELINE', claim.runId, [
      { type: 'partition.retry_page', level: 'WARN', message: error, payload },
    ]);
    return true;
  });
}

/** Fails the partition where it stands; it can be retried from there. False when the claim was lost. */
export function failPartition(db: Database, claim: PageClaim, message: string): Promise<boolean> {
  return db.transaction(claim.workerId, async (connection) => {
    if (!(await lockIfRead(connection, claim))) return false;
    const { rowCount } = await connection.query(
      `UPDATE worker_runs SET status = 'failed', error_message = $4 WHERE ${HELD}`,
      [...keyOf(claim), failureText(message)],
    );
    await rollUpPartitions(connection, claim.runId);
    return rowCount === 1;
  });
}
