/**
 * `npm run soak [-- NAME...]`: what takes too long for `npm test`, one after the other: an hour, or some of it. Prints the command and the
 * result of each, and fails if one failed. Needs what `npm test` builds.
 */

import { spawnSync } from 'node:child_process'

const vitest = (...files) => ['npx', ['vitest', 'run', '--project', 'native', ...files]]
const node = (...args) => [process.execPath, ['--expose-gc', ...args]]

/** Commands by name, with the variables that make a short test long. */
const SOAKS = {
  tools: { command: node('scripts/soak-tools.mjs') },
  rollouts: { command: node('scripts/soak-rollouts.mjs', '--minutes', '10') },
  escapes: {
    command: vitest('ts/test/tools/pyodide.test.ts', 'ts/test/tools/sandbox.test.ts'),
    env: { FULMAR_SOAK: '1' },
  },
  growth: { command: vitest('ts/test/core/growth.test.ts'), env: { FULMAR_CYCLES: '1000' } },
  kills: { command: vitest('ts/test/dataset/kills.test.ts'), env: { FULMAR_KILLS: '200' } },
}

const names = process.argv.slice(2)
const strange = names.find((name) => !Object.hasOwn(SOAKS, name))
if (strange !== undefined) {
  process.stderr.write(
    `npm run soak: a name must be one of ${Object.keys(SOAKS).join(', ')}: got ${strange}\n`,
  )
  process.exit(1)
}
let numFailed = 0
for (const name of names.length > 0 ? names : Object.keys(SOAKS)) {
  const { command, env = {} } = SOAKS[name]
  const [program, args] = command
  const variables = Object.entries(env).map(([key, value]) => `${key}=${value} `)
  process.stdout.write(
    `\n== ${name}: ${variables.join('')}${program === 'npx' ? 'npx' : 'node'} ${args.join(' ')}\n`,
  )
  const startMs = performance.now()
  const { status } = spawnSync(program, args, { stdio: 'inherit', env: { ...process.env, ...env } })
  const seconds = Math.round((performance.now() - startMs) / 1000)
  process.stdout.write(`== ${name}: ${status === 0 ? 'passed' : 'FAILED'} after ${seconds} s\n`)
  numFailed += Number(status !== 0)
}
process.exitCode = numFailed > 0 ? 1 : 0
