// What a worker says to the server about ops runs, one method per mutation.

import { ApiFault, type Api } from '../api.js';

export interface ClaimedRun {
  readonly id: string;
  readonly projectId: string;
  readonly env: string;
  readonly gitSha: string | null;
  readonly gitRef: string | null;
  readonly metadata: Readonly<Record<string, unknown>>;
  /** Tells this claim from any other by the same worker. */
  readonly attempt: number;
}

export interface LogLine {
  readonly level: 'DEBUG' | 'INFO' | 'WARN' | 'ERROR';
  readonly message: string;
  readonly payload: Readonly<Record<string, unknown>>;
}

export type Outcome = 'SUCCESS' | 'FAILED' | 'CANCELLED';

const RUN_FIELDS = 'id projectId env gitSha gitRef metadata attempt';
const ERROR_FIELDS = 'userErrors { code message details }';

const CLAIM = `mutation Claim($input: ClaimNextOpsRunInput!) {
  claimNextOpsRun(input: $input) { opsRun { ${RUN_FIELDS} } ${ERROR_FIELDS} } }`;
const HELD = `query Held($workerId: String!) {
  opsRuns(first: 1, status: [CLAIMED], claimedBy: $workerId) { nodes { ${RUN_FIELDS} } } }`;
const APPEND = `mutation Append($input: AppendOpsRunEventInput!) {
  appendOpsRunEvent(input: $input) { ${ERROR_FIELDS} } }`;
const HEARTBEAT = `mutation Heartbeat($input: OpsRunClaimInput!) {
  heartbeatOpsRun(input: $input) { cancelled ${ERROR_FIELDS} } }`;
const FINISH = `mutation Finish($input: FinishOpsRunInput!) {
  finishOpsRun(input: $input) { ${ERROR_FIELDS} } }`;

export class OpsApi {
  constructor(
    private readonly api: Api,
    readonly workerId: string,
  ) {}

  async claim(filter: { projectId: string | null; env: string | null }): Promise<ClaimedRun | null> {
    const input = { workerId: this.workerId, ...filter };
    return (await this.api.mutate<{ opsRun: ClaimedRun | null }>('claimNextOpsRun', CLAIM, input)).opsRun;
  }

  /** A run that was claimed for us while the answer was lost on its way. */
  async findUnanswered(): Promise<ClaimedRun | null> {
    const { opsRuns } = await this.api.ask<{ opsRuns: { nodes: ClaimedRun[] } }>(HELD, {
      workerId: this.workerId,
    });
    return opsRuns.nodes[0] ?? null;
  }

  /** Under the same key it is the same line, however often it is sent. */
  async append(run: ClaimedRun, line: LogLine, idempotencyKey: string): Promise<void> {
    await this.api.mutate('appendOpsRunEvent', APPEND, { ...this.claimOf(run), ...line, idempotencyKey });
  }

  /** Whether the run was cancelled. */
  async heartbeat(run: ClaimedRun): Promise<boolean> {
    return (await this.api.mutate<{ cancelled: boolean }>('heartbeatOpsRun', HEARTBEAT, this.claimOf(run)))
      .cancelled;
  }

  async finish(run: ClaimedRun, status: Outcome, metadata: object): Promise<void> {
    await this.api.mutate('finishOpsRun', FINISH, { ...this.claimOf(run), status, metadata });
  }

  private claimOf({ id, attempt }: ClaimedRun): object {
    return { runId: id, workerId: this.workerId, attempt };
  }
}

/** Where the run stands when a report was refused because it had ended; null for any other refusal. */
export function endedAs(fault: unknown): string | null {
  if (!(fault instanceof ApiFault) || fault.code !== 'ILLEGAL_TRANSITION') return null;
  return String(fault.details?.['from'] ?? '');
}

export function isClaimLost(fault: unknown): boolean {
  return fault instanceof ApiFault && (fault.code === 'CLAIM_LOST' || fault.code === 'NOT_FOUND');
}
