// Schedules: reading, saving and removing them.

import { Arg, Ctx, FieldResolver, Int, Mutation, Query, Resolver, Root } from 'type-graphql';
import { AppError } from '../errors.js';
import type { ScheduleRequest } from '../domain/schedule.js';
import { DateTimeScalar } from '../schema/scalar.js';
import { SaveScheduleInput, Schedule, ScheduleInput, SchedulePayload } from '../schema/schedule.js';
import { shape } from '../schema/shape.js';
import {
  deleteSchedule,
  listSchedules,
  saveSchedule,
  upcomingTimes,
  type ScheduleRow,
} from '../store/schedule.js';
import { Needs } from './authorise.js';
import type { Context } from './context.js';
import { mutate } from './mutate.js';

const MAX_TIMES = 100;

@Resolver(() => Schedule)
export class ScheduleResolver {
  @Needs('READ')
  @Query(() => [Schedule], { description: 'Every schedule, by name.' })
  async schedules(@Ctx() { db, viewer }: Context): Promise<Schedule[]> {
    return (await listSchedules(db, viewer)).map(showSchedule);
  }

  @FieldResolver(() => [DateTimeScalar], { description: 'Its next times; none when it is disabled.' })
  nextTimes(
    @Root() schedule: Schedule,
    @Arg('count', () => Int, { nullable: true, defaultValue: 5, description: `How many, 1 to ${MAX_TIMES}.` })
    count: number | null,
  ): Date[] {
    const wanted = count ?? 5;
    if (wanted >= 1 && wanted <= MAX_TIMES) return upcomingTimes(schedule, wanted);
    throw new AppError('BAD_USER_INPUT', `count must be from 1 to ${MAX_TIMES}, not ${wanted}.`, {
      field: ['count'],
    });
  }

  @Needs('ADMINISTER')
  @Mutation(() => SchedulePayload, { description: 'Saves a schedule: a new one, or changes to one.' })
  saveSchedule(
    @Arg('input', () => SaveScheduleInput, { description: 'The schedule as it is to be.' })
    input: SaveScheduleInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<SchedulePayload> {
    return mutate<SchedulePayload>({ schedule: null }, async () => {
      const saved = await saveSchedule(db, viewer, {
        id: input.id ?? null,
        projectId: input.projectId ?? 'default',
        name: input.name,
        request: requestOf(input),
        cron: input.cron,
        timeZone: input.timeZone ?? 'UTC',
        missed: input.missed ?? 'SKIP',
        enabled: input.enabled ?? true,
      });
      return { schedule: showSchedule(saved) };
    });
  }

  @Needs('ADMINISTER')
  @Mutation(() => SchedulePayload, { description: 'Removes a schedule; the runs that it started stay.' })
  deleteSchedule(
    @Arg('input', () => ScheduleInput, { description: 'Which schedule.' }) { id }: ScheduleInput,
    @Ctx() { db, viewer }: Context,
  ): Promise<SchedulePayload> {
    return mutate<SchedulePayload>({ schedule: null }, async () => {
      await deleteSchedule(db, viewer, id);
      return { schedule: null };
    });
  }
}

function requestOf(input: SaveScheduleInput): ScheduleRequest {
  const { kind, ruleId = null, channelId = null, sourceId = null, runType = null } = input;
  if (kind === 'PIPELINE') {
    refuseOthers(kind, { ruleId, channelId });
    return { kind, sourceId: need('sourceId', kind, sourceId), runType };
  }
  refuseOthers(kind, { sourceId, runType });
  return { kind, ruleId: need('ruleId', kind, ruleId), channelId: need('channelId', kind, channelId) };
}

function need(field: string, kind: string, value: string | null): string {
  if (value !== null) return value;
  throw new AppError('INVALID_INPUT', `A ${kind} schedule needs ${field}.`, { field: ['input', field] });
}

function refuseOthers(kind: string, values: Readonly<Record<string, unknown>>): void {
  for (const [field, value] of Object.entries(values)) {
    if (value === null) continue;
    throw new AppError('INVALID_INPUT', `A ${kind} schedule takes no ${field}.`, { field: ['input', field] });
  }
}

function showSchedule(row: ScheduleRow): Schedule {
  const { request, tenantId: _tenant, createdAt: _created, updatedAt: _updated, ...shown } = row;
  const isRule = request.kind === 'RULE';
  return shape(Schedule, {
    ...shown,
    ruleId: isRule ? request.ruleId : null,
    channelId: isRule ? request.channelId : null,
    sourceId: isRule ? null : request.sourceId,
    runType: isRule ? null : request.runType,
  });
}
