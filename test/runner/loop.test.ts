// The loop of one worker: the states it passes through, its turns between kinds of work, what it does when
// something fails, how it rests and is woken, and how it stops.
import { expect, test } from 'vitest';
import type { WorkerState } from '../../src/domain/worker-loop.js';
import { Doorbell } from '../../src/runner/doorbell.js';
import { WorkerLoop, type LoopOptions } from '../../src/runner/loop.js';
import { fail, KeptLog, ScriptedKind, signalled, succeed, whenAborted } from './support.js';

class Bench {
  readonly kinds: ScriptedKind[];
  readonly doorbell = new Doorbell();
  readonly log = new KeptLog();
  readonly states: WorkerState[] = [];
  readonly loop: WorkerLoop;

  constructor(names: readonly string[] = ['a'], options: Partial<LoopOptions> = {}) {
    this.kinds = names.map((name) => new ScriptedKind(name));
    const see = async (): Promise<void> => void this.states.push(this.loop.state);
    this.loop = new WorkerLoop({
      id: 'w-1',
      kinds: this.kinds,
      connect: see,
      recover: see,
      doorbell: this.doorbell,
      log: this.log,
      errorWaitMs: 1,
      minIdleMs: 1,
      maxIdleMs: 4,
      ...options,
    });
  }

  get kind(): ScriptedKind {
    return this.kinds[0]!;
  }
}

test('it connects, recovers, polls and rests when there is nothing', async () => {
  const bench = new Bench();
  expect(bench.loop.state).toBe('STARTUP');
  expect(await bench.loop.runOnce()).toBe(false);
  expect(bench.states).toEqual(['CONNECTING', 'RECOVERY']);
  expect(bench.kind.polls).toBe(1);
  expect(bench.loop.state).toBe('IDLE');
});

test('a unit of work is claimed, processed, reported, and the next one polled for', async () => {
  const done: unknown[] = [];
  const bench = new Bench(['a'], { observer: { onWork: (kind, result) => done.push([kind, result]) } });
  const seen: [WorkerState, number][] = [];
  bench.kind.add(async () => {
    seen.push([bench.loop.state, bench.loop.leases]);
    return 'success';
  }, fail);
  expect(await bench.loop.runOnce()).toBe(true);
  expect(await bench.loop.runOnce()).toBe(true);
  expect(await bench.loop.runOnce()).toBe(false);
  expect(seen).toEqual([['PROCESSING', 1]]);
  expect(bench.loop.leases).toBe(0);
  expect(done).toEqual([
    ['a', 'success'],
    ['a', 'failure'],
  ]);
  // Between units it polls again, without connecting anew.
  expect(bench.states).toEqual(['CONNECTING', 'RECOVERY']);
  expect(bench.kind.claimedBy).toEqual(['w-1', 'w-1']);
});

test('kinds take turns, however much one of them has to do', async () => {
  const bench = new Bench(['a', 'b', 'c']);
  const order: string[] = [];
  const [a, b, c] = bench.kinds as [ScriptedKind, ScriptedKind, ScriptedKind];
  const unit = (name: string) => async () => {
    order.push(name);
    return 'success' as const;
  };
  a.add(...Array.from({ length: 4 }, () => unit('a')));
  b.add(unit('b'), unit('b'));
  c.add(unit('c'));
  while (await bench.loop.runOnce());
  expect(order).toEqual(['a', 'b', 'c', 'a', 'b', 'a', 'a']);
});

test('a kind that is due but gives nothing is a miss, not a reason to spin', async () => {
  const bench = new Bench(['a', 'b']);
  const [a, b] = bench.kinds as [ScriptedKind, ScriptedKind];
  a.pretends = true;
  b.add(succeed);
  expect(await bench.loop.runOnce()).toBe(true);
  expect(b.claimedBy).toHaveLength(1);
  expect(await bench.loop.runOnce()).toBe(false);
  expect(bench.loop.state).toBe('IDLE');
  expect(a.polls).toBeLessThanOrEqual(3);
});

test('a kind that fails rests; the others are served meanwhile', async () => {
  const bench = new Bench(['a', 'b'], { errorWaitMs: 60_000 });
  const [a, b] = bench.kinds as [ScriptedKind, ScriptedKind];
  const boom = new Error('boom');
  a.add(() => Promise.reject(boom), succeed);
  b.add(succeed, succeed);
  await expect(bench.loop.runOnce()).rejects.toBe(boom);
  expect(bench.loop.state).toBe('ERROR_WAIT');
  expect(bench.log.entries).toMatchObject([{ level: 'error', details: { kind: 'a', state: 'PROCESSING' } }]);
  while (await bench.loop.runOnce());
  expect(b.claimedBy).toHaveLength(2);
  expect(a.claimedBy).toHaveLength(1);
});

test.each(['connect', 'recover'] as const)('when %s fails it waits, then connects again', async (step) => {
  let failures = 1;
  const bench = new Bench(['a'], {
    [step]: async () => {
      if (failures-- > 0) throw new Error('no database');
    },
  });
  const served = signalled();
  bench.kind.add(async () => {
    served.resolve();
    return 'success';
  });
  const running = bench.loop.run();
  await served.promise;
  expect(bench.log.entries).toHaveLength(1);
  bench.loop.stop();
  await running;
});

test('the wait after an error is not cut short by a bell, but by stop', async () => {
  const bench = new Bench(['a'], { errorWaitMs: 3_600_000 });
  bench.kind.fault = new Error('boom');
  const logged = signalled();
  const { error } = bench.log;
  Object.assign(bench.log, {
    error: (details: object, message: string) => {
      error(details, message);
      logged.resolve();
    },
  });
  const running = bench.loop.run();
  await logged.promise;
  bench.doorbell.ring();
  await new Promise(setImmediate);
  expect(bench.loop.state).toBe('ERROR_WAIT');
  bench.loop.stop();
  await running;
  expect(bench.loop.state).toBe('STOPPED');
});

test('a bell wakes a resting worker at once, also one that rang while it looked', async () => {
  const bench = new Bench(['a'], { minIdleMs: 3_600_000, maxIdleMs: 3_600_000 });
  const running = bench.loop.run();
  for (let unit = 0; unit < 3; unit += 1) {
    const served = signalled();
    bench.kind.add(async () => {
      served.resolve();
      return 'success';
    });
    bench.doorbell.ring();
    await served.promise;
  }
  bench.loop.stop();
  await running;
});

test('it rests no longer than until the next thing is due', async () => {
  const bench = new Bench(['a'], { minIdleMs: 3_600_000, maxIdleMs: 3_600_000 });
  bench.kind.nextInMs = 5;
  const served = signalled();
  const running = bench.loop.run();
  bench.kind.add(async () => {
    served.resolve();
    return 'success';
  });
  await served.promise;
  bench.loop.stop();
  await running;
});

test('stop lets the unit in hand end; cut ends it', async () => {
  const bench = new Bench();
  const started = signalled();
  let cut = false;
  bench.kind.add(async (signal) => {
    started.resolve();
    await whenAborted(signal);
    cut = true;
    return 'failure';
  }, succeed);
  const running = bench.loop.run();
  await started.promise;
  bench.loop.stop();
  await new Promise(setImmediate);
  expect(bench.loop.state).toBe('PROCESSING');
  expect(cut).toBe(false);
  bench.loop.cut();
  await running;
  expect(cut).toBe(true);
  expect(bench.loop.state).toBe('STOPPED');
  expect(bench.kind.claimedBy).toHaveLength(1);
});

test('one ring wakes one loop; the one that finds work rings for the next', async () => {
  const bench = new Bench(['a'], { minIdleMs: 3_600_000, maxIdleMs: 3_600_000 });
  const second = new WorkerLoop({
    id: 'w-2',
    kinds: bench.kinds,
    connect: async () => {},
    recover: async () => {},
    doorbell: bench.doorbell,
    log: bench.log,
    errorWaitMs: 1,
    minIdleMs: 3_600_000,
    maxIdleMs: 3_600_000,
  });
  const loops = [bench.loop, second];
  const running = Promise.all(loops.map((loop) => loop.run()));
  while (loops.some(({ state }) => state !== 'IDLE')) await new Promise(setImmediate);
  const both = signalled();
  let inHand = 0;
  const together = async (): Promise<'success'> => {
    if ((inHand += 1) === 2) both.resolve();
    await both.promise;
    return 'success';
  };
  bench.kind.add(together, together);
  bench.doorbell.ring();
  await both.promise;
  expect(new Set(bench.kind.claimedBy)).toEqual(new Set(['w-1', 'w-2']));
  for (const loop of loops) loop.stop();
  await running;
});
