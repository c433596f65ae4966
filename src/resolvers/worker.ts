// The workers, for whoever wonders why nothing moves.

import { Ctx, Query, Resolver } from 'type-graphql';
import { shape } from '../schema/shape.js';
import { Worker } from '../schema/worker.js';
import { listWorkers } from '../store/worker.js';
import { Needs } from './authorise.js';
import type { Context } from './context.js';

@Resolver()
export class WorkerResolver {
  @Needs('READ')
  @Query(() => [Worker], { description: 'Every worker that was heard of within the last day.' })
  async workers(@Ctx() { db, viewer }: Context): Promise<Worker[]> {
    return (await listWorkers(db, viewer)).map((row) => shape(Worker, row));
  }
}
