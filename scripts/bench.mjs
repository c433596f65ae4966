// `npm run bench -- NAME [--quick]`: makes the clone ready, then runs bench/NAME.ts. Each benchmark prints a
// table and, as its last line, one line of JSON.
import { readdirSync } from 'node:fs';
import { prepare } from './lib/prepare.mjs';
import { inProject, main, StepFailed } from './lib/project.mjs';

await main(async () => {
  const [name = ''] = process.argv.slice(2);
  const names = readdirSync(inProject('bench'))
    .filter((file) => file.endsWith('.ts'))
    .map((file) => file.slice(0, -3));
  if (!names.includes(name))
    throw new StepFailed(`npm run bench -- NAME, where NAME is ${names.join(' or ')}`);
  await prepare();
  const { register } = await import('tsx/esm/api');
  register();
  await import(new URL(`../bench/${name}.ts`, import.meta.url).href);
});
