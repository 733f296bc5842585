/**
 * `npm run conform -- [--backend native|wasm] FILE.jsonl...`: compares the built package with golden rows. With `--perturb [--seed N]
 * [--share N]` it changes what they expect, one value at a time, and asserts that every changed row fails.
 */

import { existsSync } from 'node:fs'
import { asProgram, Refusal, root, run } from './steps.mjs'

const CONDITIONS = { native: [], wasm: ['--conditions=fulmar-wasm'] }

asProgram(async () => {
  const { backend, rest, files } = parse(process.argv.slice(2))
  if (files.length === 0)
    throw new Refusal('npm run conform -- [--backend native|wasm] [--perturb] FILE.jsonl...: got no file')
  const missing = files.find((file) => !existsSync(file))
  if (missing !== undefined) throw new Refusal(`a file of golden rows must exist: got ${missing}`)
  if (!existsSync(`${root}dist/index.js`)) throw new Refusal('dist/ must be built first: npm run build')
  const args = [...CONDITIONS[backend], `${root}tests/conformance/run.mjs`, ...rest, ...files]
  const { code } = await run(process.execPath, args, { echo: true, cwd: process.cwd() })
  return code
})

function parse(args) {
  let backend = 'native'
  const rest = []
  const files = []
  for (let index = 0; index < args.length; index += 1) {
    const [name, value] = args[index].split(/=(.*)/s)
    if (name === '--backend') backend = value ?? args[++index]
    else if (name === '--perturb') rest.push(name)
    else if (name === '--seed' || name === '--share')
      rest.push(`${name}=${countIn(name, value ?? args[++index])}`)
    else if (name.startsWith('--'))
      throw new Refusal(
        `an option must be --backend native|wasm, --perturb, --seed N or --share N: got ${args[index]}`,
      )
    else files.push(args[index])
  }
  if (!Object.hasOwn(CONDITIONS, backend ?? ''))
    throw new Refusal(`--backend must be native or wasm: got ${backend}`)
  return { backend, rest, files }
}

function countIn(name, text) {
  if (!/^[1-9]\d{0,8}$/.test(text ?? ''))
    throw new Refusal(`${name} must be a whole number from 1: got ${text}`)
  return text
}
