/**
 * `node scripts/edge.mjs [workerd] [chromium]`: bundles examples/edge/worker.ts for a runtime without Node, asks it
 * there, and checks that what the WebAssembly build answers is, to the last digit, what the addon computes here.
 *
 * workerd is a development dependency. Chromium is CHROMIUM_PATH, or Debian's; without a browser, its
 * checks count as skipped, or fail where CI is set.
 */

import { copyFileSync, existsSync, mkdirSync } from 'node:fs'
import { isDeepStrictEqual } from 'node:util'
import { rolldown } from 'rolldown'
import { findChromium, openChromium } from './edge-chromium.mjs'
import { openWorkerd } from './edge-workerd.mjs'
import { asProgram, compileExamples, isAllRequired, Refusal, root } from './steps.mjs'

const [WASM, SANDBOX] = ['fulmar_wasm_bg.wasm', 'fulmar_sandbox.wasm']
const OUT = `${root}build/edge`

/** Each runtime: its import condition, the imports that its bundle keeps, and how it is started. */
const RUNTIMES = {
  workerd: {
    condition: 'workerd',
    imports: [`./${WASM}`, `./${SANDBOX}`],
    open: openWorkerd,
    missing: () => undefined,
  },
  chromium: { condition: 'browser', imports: [], open: openChromium, missing: chromiumMissing },
}

asProgram(async () => {
  const names = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(RUNTIMES)
  const unknown = names.find((name) => !(name in RUNTIMES))
  if (unknown) throw new Refusal(`runtime must be one of ${Object.keys(RUNTIMES).join(', ')}: got ${unknown}`)
  for (const part of ['dist/index.js', `wasm/${WASM}`, `wasm/${SANDBOX}`, 'addon/index.cjs']) {
    if (!existsSync(root + part)) throw new Refusal(`${part} must be built first: npm run build`)
  }
  await compileExamples()
  mkdirSync(OUT, { recursive: true })
  for (const file of [WASM, SANDBOX]) copyFileSync(`${root}wasm/${file}`, `${OUT}/${file}`)
  const questions = await (await import('./edge-questions.mjs')).questions()
  const total = { passed: 0, failed: 0, skipped: 0 }
  for (const name of names) {
    const found = await check(name, questions)
    for (const key of Object.keys(total)) total[key] += found[key]
  }
  process.stdout.write(`edge: ${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped\n`)
  return total.failed === 0 ? 0 : 1
})

/** Asks every question in one runtime; resolves with the counts. */
async function check(name, questions) {
  const { condition, imports: expectedImports, open, missing } = RUNTIMES[name]
  const reason = missing()
  if (reason !== undefined) {
    process.stdout.write(`${name} ${isAllRequired ? 'FAILED' : 'SKIPPED'}: ${reason}\n`)
    const count = questions.length + 1
    return { passed: 0, ...(isAllRequired ? { failed: count, skipped: 0 } : { failed: 0, skipped: count }) }
  }
  const counts = { passed: 0, failed: 0, skipped: 0 }
  const record = (what, got, wanted) => {
    const passed = isDeepStrictEqual(got, wanted)
    counts[passed ? 'passed' : 'failed'] += 1
    const verdict = passed ? 'ok' : `FAILED\n${JSON.stringify(got)}\n${JSON.stringify(wanted)}`
    process.stdout.write(`${name}: ${what}: ${verdict}\n`)
  }
  record('the bundle imports nothing else', await bundle(name, condition), expectedImports)
  const runtime = await open(`${OUT}/${name}.js`)
  try {
    for (const { what, path, body, expected, part = (whole) => whole } of questions) {
      record(what, part(await runtime.post(path, JSON.stringify(body))), expected)
    }
  } finally {
    await runtime.close()
  }
  return counts
}

/** Puts the worker and what it uses of the package into one module, and resolves with what that still imports. */
async function bundle(name, condition) {
  const beside = (file) => ({ id: `./${file}`, external: true })
  const binaries = { '#wasm-binary': beside(WASM), '#sandbox-binary': beside(SANDBOX) }
  const built = await rolldown({
    input: `${root}build/examples/edge/worker.js`,
    platform: 'browser',
    // What the worker does not use, and nothing else, may need Node: the check of the imports shows it.
    external: /^node:/,
    resolve: { conditionNames: [condition, 'import', 'default'] },
    plugins: [{ name: 'wasm-beside', resolveId: (id) => binaries[id] ?? null }],
  })
  const { output } = await built.write({ file: `${OUT}/${name}.js`, format: 'esm' })
  await built.close()
  return output.flatMap(({ imports }) => imports)
}

function chromiumMissing() {
  if (findChromium() !== undefined) return undefined
  return "no browser was found; install Debian's package chromium, or name one in CHROMIUM_PATH"
}
