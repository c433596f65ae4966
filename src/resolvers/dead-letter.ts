// Dead letters: listing them over all runs, and the report about them.

import { Arg, Ctx, ID, Mutation, Query, Resolver } from 'type-graphql';
import { adviseOn } from '../domain/dead-letter.js';
import { MAX_LONG_PAGE } from '../domain/page.js';
import { DeadLetterReport, DeadLetterReportPayload, DrainDeadLettersInput } from '../schema/dead-letter.js';
import { After, First, type CountedConnection } from '../schema/page.js';
import { RuleTargetConnection, type RuleTarget } from '../schema/rule-target.js';
import { shape } from '../schema/shape.js';
import {
  countDeadLetters,
  countDeadLettersByCode,
  deadLetterCursor,
  listDeadLetters,
} from '../store/dead-letter.js';
import { Needs } from './authorise.js';
import { connect } from './connect.js';
import type { Context } from './context.js';
import { mutate } from './mutate.js';
import { showRuleTarget } from './rule-target.js';

const LETTERS_PER_PAGE = 50;

@Resolver()
export class DeadLetterResolver {
  @Needs('READ')
  @Query(() => RuleTargetConnection, {
    description: 'Targets that failed for good, over all runs; those of the newest run first.',
  })
  async deadLetters(
    @First(LETTERS_PER_PAGE, MAX_LONG_PAGE) first: number | null,
    @After() after: string | null = null,
    @Arg('projectId', () => String, { nullable: true, description: 'Only of runs of this project.' })
    projectId: string | null = null,
    @Arg('runId', () => ID, { nullable: true, description: 'Only of this run.' })
    runId: string | null = null,
    @Arg('errorCode', () => String, {
      nullable: true,
      description: 'Only those that failed for this reason.',
    })
    errorCode: string | null = null,
    @Ctx() { db, viewer }: Context,
  ): Promise<CountedConnection<RuleTarget>> {
    const filter = { projectId, runId, errorCode };
    const page = await listDeadLetters(db, viewer, { first: first ?? LETTERS_PER_PAGE, after, filter });
    return {
      ...connect(page, showRuleTarget, deadLetterCursor),
      totalCount: () => countDeadLetters(db, viewer, filter),
    };
  }

  @Needs('OPERATE')
  @Mutation(() => DeadLetterReportPayload, {
    description: 'Sums up the dead letters of a project by reason, with what to do about each.',
  })
  drainDeadLetters(
    @Arg('input', () => DrainDeadLettersInput, { description: 'Whose dead letters to sum up.' })
    { projectId }: DrainDeadLettersInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<DeadLetterReportPayload> {
    return mutate<DeadLetterReportPayload>({ report: null }, async () => {
      const counts = await countDeadLettersByCode(db, viewer, projectId);
      const byErrorCode = Object.fromEntries(counts.map(({ code, count }) => [code, count]));
      const total = counts.reduce((sum, { count }) => sum + count, 0);
      const recommendations = adviseOn(counts);
      return { report: shape(DeadLetterReport, { total, byErrorCode, recommendations }) };
    });
  }
}
