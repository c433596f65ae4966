// One contender's server process: started with a ServerTask, tells its port, then its usage when asked.

import { pino } from 'pino';
import { STARTS } from './contenders.js';
import type { ServerTask, Usage } from './protocol.js';

const task = JSON.parse(process.argv[2]!) as ServerTask;
const log = pino({ level: 'warn' }, pino.destination({ fd: 2, sync: true }));

process.on('message', () => {
  // Before the collection that is made for the memory's sake only.
  const { user, system } = process.cpuUsage();
  globalThis.gc?.();
  const { rss, heapUsed, external } = process.memoryUsage();
  const usage: Usage = {
    type: 'usage',
    residentBytes: rss,
    usedBytes: heapUsed + external,
    cpu: user + system,
  };
  process.send!(usage);
});
process.send!({ type: 'port', port: await STARTS[task.contender](task, log) });
