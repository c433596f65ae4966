// `npm start`: makes the clone ready, then becomes the server, in this process so that signals reach it.
import { prepare } from './lib/prepare.mjs';
import { main } from './lib/project.mjs';

await main(async () => {
  await prepare();
  await import('../dist/main.js');
});
