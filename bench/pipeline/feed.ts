// The supplier of the benchmark, in a process of its own: its work is not the pipeline's. Says where it
// listens and stays until it is ended.

import { startSandbox } from '../../src/sandbox/server.js';

const sandbox = await startSandbox();
console.log(JSON.stringify(sandbox.feedConfig('bench', { size: Number(process.argv[2]) })));
