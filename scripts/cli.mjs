// `npm run runledger`: makes the clone ready without a word, since the command's output is the caller's,
// then becomes the command with the arguments as given.
import { prepare } from './lib/prepare.mjs';
import { main } from './lib/project.mjs';

await main(async () => {
  await prepare({ say: () => {} });
  await import('../dist/cli/main.js');
});
