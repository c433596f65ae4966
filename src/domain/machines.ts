// Every machine there is, for those who treat them alike: the database's guards, the documentation, the
// `stateMachines` query and the exhaustive tests.

import type { Machine } from './machine.js';
import { opsRunMachine } from './ops-run.js';
import { partitionMachine } from './partition.js';
import { pipelineRunMachine } from './pipeline-run.js';
import { ruleRunMachine } from './rule-run.js';
import { ruleTargetMachine } from './rule-target.js';
import { workerLoopMachine } from './worker-loop.js';

export const MACHINES: readonly Machine[] = [
  ruleRunMachine,
  ruleTargetMachine,
  pipelineRunMachine,
  partitionMachine,
  opsRunMachine,
  workerLoopMachine,
];
