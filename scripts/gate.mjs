// `npm test`: the whole gate. Static checks first, two at a time, then the tests; it ends at the first
// failure. The last line is always `N passed, N failed`. Arguments go to vitest.
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { prepare } from './lib/prepare.mjs';
import { inProject, main, runNode, StepFailed } from './lib/project.mjs';

const tool = (path) => inProject('node_modules', path);

const STATIC_CHECKS = [
  { title: 'lint', args: [tool('eslint/bin/eslint.js'), '--max-warnings', '0', '.'] },
  { title: 'types', args: [tool('typescript/bin/tsc'), '--noEmit', '-p', 'tsconfig.json'] },
  { title: 'format', args: [tool('prettier/bin/prettier.cjs'), '--check', '--log-level', 'warn', '.'] },
];

/** Comes first: it makes the typed documents that the others read. */
const GENERATED = { title: 'generated files', args: [inProject('scripts/generate.mjs'), '--check'] };

const heading = (title, verdict) => console.log(`\n=== ${title}: ${verdict}`);

/** Reports a check whole, so that the output of two never mixes. */
async function passes({ title, args }) {
  const { code, output } = await runNode(args);
  heading(title, code === 0 ? 'ok' : 'FAILED');
  if (code !== 0) console.log(output.trim());
  return code === 0;
}

/** Runs the checks on two lanes. */
async function runStaticChecks() {
  if (!(await passes(GENERATED))) return { passed: 0, failed: 1 };
  const waiting = [...STATIC_CHECKS];
  let failed = 0;
  const lane = async () => {
    while (failed === 0 && waiting.length > 0) if (!(await passes(waiting.shift()))) failed += 1;
  };
  await Promise.all([lane(), lane()]);
  return { passed: 0, failed };
}

/** A file that could not be collected has no tests to count, so it counts as one failure itself. */
function countTests(reportPath, code) {
  if (!existsSync(reportPath)) return { passed: 0, failed: 1 };
  const report = JSON.parse(readFileSync(reportPath, 'utf8'));
  const brokenFiles = report.testResults.filter(
    ({ status, assertionResults }) => status === 'failed' && assertionResults.length === 0,
  );
  const failed = report.numFailedTests + brokenFiles.length;
  return { passed: report.numPassedTests, failed: Math.max(failed, code === 0 ? 0 : 1) };
}

async function runTests(extraArgs) {
  const directory = mkdtempSync(join(tmpdir(), 'runledger-gate-'));
  const report = join(directory, 'vitest.json');
  heading('tests', 'vitest');
  try {
    const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${report}`];
    const { code } = await runNode([tool('vitest/vitest.mjs'), 'run', ...reporters, ...extraArgs], {
      capture: false,
    });
    return countTests(report, code);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

let result = { passed: 0, failed: 1 };
await main(async () => {
  try {
    await prepare({ say: console.log });
  } catch (error) {
    heading('prepare', 'FAILED');
    throw error;
  }
  result = await runStaticChecks();
  if (result.failed === 0) result = await runTests(process.argv.slice(2));
  if (result.failed > 0) throw new StepFailed('\nThe gate is not passed.');
});
console.log(`${result.passed} passed, ${result.failed} failed`);
