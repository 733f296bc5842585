/**
 * `npm run quickstart -- [options]`: sets up what is missing, then runs examples/01-grpo-sum-digits.ts.
 *
 * `--backend native|wasm` chooses the build of the core; every other option goes to the example.
 */

import { spawn } from 'node:child_process'
import {
  asProgram,
  buildAddon,
  buildWasm,
  checkTools,
  compileExamples,
  compileSources,
  installPackages,
  Refusal,
  root,
} from './steps.mjs'

asProgram(async () => {
  const { backend, rest } = takeBackend(process.argv.slice(2))
  checkTools()
  await announce('npm packages', installPackages)
  if (backend === 'wasm') {
    const reason = await announce('WebAssembly module', buildWasm)
    if (reason) throw new Refusal(`the WebAssembly module cannot be built here: ${reason}`)
  } else {
    await announce('native addon (the first build takes minutes)', buildAddon)
  }
  await announce('TypeScript', async () => {
    await compileSources()
    await compileExamples()
  })
  const conditions = backend === 'wasm' ? ['--conditions=fulmar-wasm'] : []
  return start([...conditions, '--enable-source-maps', 'build/examples/01-grpo-sum-digits.js', ...rest])
})

/** Splits `--backend X` or `--backend=X` off the arguments. */
function takeBackend(args) {
  const rest = [...args]
  const at = rest.findIndex((arg) => arg === '--backend' || arg.startsWith('--backend='))
  if (at < 0) return { backend: 'native', rest }
  const [first = ''] = rest.splice(at, 1)
  const backend = first.includes('=') ? first.split('=')[1] : rest.splice(at, 1)[0]
  if (backend !== 'native' && backend !== 'wasm') {
    throw new Refusal(`--backend must be native or wasm: got ${backend ?? 'nothing'}`)
  }
  return { backend, rest }
}

/** Progress goes to standard error: with `--json` the last line of standard output belongs to the example. */
async function announce(what, work) {
  process.stderr.write(`setting up: ${what} ... `)
  const begin = performance.now()
  const result = await work()
  process.stderr.write(`${((performance.now() - begin) / 1000).toFixed(1)} s\n`)
  return result
}

/** The example in the foreground, with this terminal; resolves with its exit status. */
function start(args) {
  const child = spawn(process.execPath, args, { cwd: root, stdio: 'inherit' })
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => child.kill(signal))
  return new Promise((resolve) => child.on('close', (code) => resolve(code ?? 1)))
}
