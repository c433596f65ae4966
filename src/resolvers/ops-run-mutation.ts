// Ops runs: queueing and cancelling them, and what workers do with them. Each mutation is one verb of the
// store.

import { Arg, Ctx, Mutation, Resolver } from 'type-graphql';
import { DEFAULT_MAX_ATTEMPTS } from '../domain/ops-run.js';
import {
  AppendOpsRunEventInput,
  CancelOpsRunInput,
  ClaimNextOpsRunInput,
  FinishOpsRunInput,
  OpsRunClaimInput,
  QueueOpsRunInput,
} from '../schema/ops-run-input.js';
import { OpsRunEventPayload, OpsRunHeartbeatPayload, OpsRunPayload } from '../schema/ops-run.js';
import {
  appendOpsRunEvent,
  cancelOpsRun,
  claimNextOpsRun,
  finishOpsRun,
  heartbeatOpsRun,
  queueOpsRun,
  type OpsClaim,
  type OpsRunRow,
} from '../store/ops-run.js';
import { Needs } from './authorise.js';
import type { Context } from './context.js';
import { mutate } from './mutate.js';
import { showOpsRun } from './ops-run.js';
import { showRunEvent } from './run-event.js';

@Resolver()
export class OpsRunMutationResolver {
  @Needs('WORK_OPS')
  @Mutation(() => OpsRunPayload, { description: 'Queues a run for a worker to claim.' })
  queueOpsRun(
    @Arg('input', () => QueueOpsRunInput, { description: 'The run to queue.' }) input: QueueOpsRunInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<OpsRunPayload> {
    return answer(() =>
      queueOpsRun(db, viewer, {
        projectId: input.projectId,
        env: input.env,
        gitSha: input.gitSha ?? null,
        gitRef: input.gitRef ?? null,
        metadata: input.metadata,
        idempotencyKey: input.idempotencyKey ?? null,
        priority: input.priority ?? 0,
        onStale: input.onStale ?? 'cancel',
        maxAttempts: input.maxAttempts ?? DEFAULT_MAX_ATTEMPTS,
      }),
    );
  }

  @Needs('WORK_OPS')
  @Mutation(() => OpsRunPayload, {
    description:
      'QUEUED → CLAIMED: the oldest run of the highest priority; null when there is nothing to claim.',
  })
  claimNextOpsRun(
    @Arg('input', () => ClaimNextOpsRunInput, { description: 'Who claims, and what.' })
    input: ClaimNextOpsRunInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<OpsRunPayload> {
    const { workerId, projectId = null, env = null } = input;
    return answer(() => claimNextOpsRun(db, viewer, { workerId, projectId, env }));
  }

  @Needs('WORK_OPS')
  @Mutation(() => OpsRunEventPayload, {
    description: 'Appends a line to the ledger of a run that the worker holds; the first: CLAIMED → RUNNING.',
  })
  appendOpsRunEvent(
    @Arg('input', () => AppendOpsRunEventInput, { description: 'The line.' }) input: AppendOpsRunEventInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<OpsRunEventPayload> {
    const { message, payload, idempotencyKey = null } = input;
    const line = { ...claimOf(input), level: input.level ?? 'INFO', message, payload, idempotencyKey };
    return mutate<OpsRunEventPayload>({ event: null }, async () => ({
      event: showRunEvent(await appendOpsRunEvent(db, viewer, line)),
    }));
  }

  @Needs('WORK_OPS')
  @Mutation(() => OpsRunHeartbeatPayload, {
    description: 'Says that the worker is alive; the answer says whether the run was cancelled.',
  })
  heartbeatOpsRun(
    @Arg('input', () => OpsRunClaimInput, { description: 'The run and its worker.' }) input: OpsRunClaimInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<OpsRunHeartbeatPayload> {
    return mutate<OpsRunHeartbeatPayload>({ opsRun: null, cancelled: false }, async () => {
      const row = await heartbeatOpsRun(db, viewer, claimOf(input));
      return { opsRun: showOpsRun(row), cancelled: row.status === 'cancelled' };
    });
  }

  @Needs('WORK_OPS')
  @Mutation(() => OpsRunPayload, {
    description: 'RUNNING → SUCCESS, FAILED or CANCELLED, by the worker that holds it.',
  })
  finishOpsRun(
    @Arg('input', () => FinishOpsRunInput, { description: 'How it ended.' }) input: FinishOpsRunInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<OpsRunPayload> {
    const { status, metadata } = input;
    return answer(() => finishOpsRun(db, viewer, { ...claimOf(input), status, metadata }));
  }

  @Needs('WORK_OPS')
  @Mutation(() => OpsRunPayload, {
    description: 'Stops a run that has not ended. Its worker learns of it at its next event or heartbeat.',
  })
  cancelOpsRun(
    @Arg('input', () => CancelOpsRunInput, { description: 'The run to cancel.' }) input: CancelOpsRunInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<OpsRunPayload> {
    const { runId, reason = null } = input;
    return answer(() => cancelOpsRun(db, viewer, { runId, reason }));
  }
}

function claimOf({ runId, workerId, attempt = null }: OpsRunClaimInput): OpsClaim {
  return { runId, workerId, attempt };
}

function answer(verb: () => Promise<OpsRunRow | null>): Promise<OpsRunPayload> {
  return mutate<OpsRunPayload>({ opsRun: null }, async () => {
    const row = await verb();
    return { opsRun: row && showOpsRun(row) };
  });
}
