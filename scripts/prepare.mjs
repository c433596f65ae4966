// `npm run build`: makes the clone ready to run, and nothing else.
import { prepare } from './lib/prepare.mjs';
import { main } from './lib/project.mjs';

await main(() => prepare());
