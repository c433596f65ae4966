// Every subcommand of `runledger`, one line each.

import { cancelCommand } from './cancel.js';
import type { Command } from './command.js';
import { doctorCommand } from './doctor.js';
import { keysCommand } from './keys.js';
import { pruneCommand } from './prune.js';
import { queueCommand } from './queue.js';
import { watchCommand } from './watch/watch.js';
import { workCommand } from './work/work.js';

export const COMMANDS: readonly Command[] = [
  workCommand,
  watchCommand,
  queueCommand,
  cancelCommand,
  doctorCommand,
  keysCommand,
  pruneCommand,
];
