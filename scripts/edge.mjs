/**
 * `node scripts/edge.mjs`: bundles examples/edge/worker.ts, serves it with workerd on a loopback port, and checks that
 * what the WebAssembly build answers there is, to the last digit, what the addon computes here.
 */

import { spawn } from 'node:child_process'
import { copyFileSync, existsSync, mkdirSync } from 'node:fs'
import { createRequire } from 'node:module'
import { isDeepStrictEqual } from 'node:util'
import { rolldown } from 'rolldown'
import { asProgram, compileExamples, Refusal, root } from './steps.mjs'

const WASM = 'fulmar_wasm_bg.wasm'
const OUT = `${root}build/edge`
const START_TIMEOUT_MS = 20_000

asProgram(async () => {
  for (const part of ['dist/index.js', `wasm/${WASM}`, 'addon/index.cjs']) {
    if (!existsSync(root + part)) throw new Refusal(`${part} must be built first: npm run build`)
  }
  await compileExamples()
  const imports = await bundle()
  const worker = await serve()
  try {
    return await check(worker.port, imports)
  } finally {
    worker.stop()
  }
})

/** Puts the worker and what it uses of the package into one module, and resolves with what that still imports. */
async function bundle() {
  mkdirSync(OUT, { recursive: true })
  copyFileSync(`${root}wasm/${WASM}`, `${OUT}/${WASM}`)
  const beside = { id: `./${WASM}`, external: true }
  const built = await rolldown({
    input: `${root}build/examples/edge/worker.js`,
    platform: 'browser',
    // What the worker does not use, and nothing else, may need Node: see `check`.
    external: /^node:/,
    resolve: { conditionNames: ['workerd', 'import', 'default'] },
    plugins: [{ name: 'wasm-beside', resolveId: (id) => (id === '#wasm-binary' ? beside : null) }],
  })
  const { output } = await built.write({ file: `${OUT}/worker.js`, format: 'esm' })
  await built.close()
  return output.flatMap(({ imports }) => imports)
}

/** Starts workerd; resolves with its port once it listens. */
async function serve() {
  const args = ['serve', '--control-fd=3', `${root}examples/edge/workerd.capnp`]
  const { default: command } = createRequire(import.meta.url)('workerd')
  const child = spawn(command, args, { stdio: ['ignore', 'inherit', 'inherit', 'pipe'] })
  const stop = () => child.kill()
  const port = await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Refusal('workerd did not start in time')), START_TIMEOUT_MS)
    let events = ''
    child.stdio[3].setEncoding('utf8').on('data', (text) => {
      events += text
      const [, found] = /"event":"listen","socket":"http","port":(\d+)/.exec(events) ?? []
      if (found === undefined) return
      clearTimeout(timer)
      resolve(Number(found))
    })
    child.once('error', reject)
    child.once('close', (code) => reject(new Refusal(`workerd ended with exit status ${code}`)))
  }).catch((error) => {
    stop()
    throw error
  })
  return { port, stop }
}

/** Sends a good request and a bad one; resolves with the exit status. */
async function check(port, imports) {
  const { scoreRollouts } = await import(`${root}build/examples/edge/score.js`)
  const post = async (body) => {
    const response = await fetch(`http://127.0.0.1:${port}/`, { method: 'POST', body: JSON.stringify(body) })
    return { status: response.status, body: await response.json() }
  }
  const request = await sampleRequest()
  const expected = {
    status: 200,
    body: { backend: 'wasm', scores: JSON.parse(JSON.stringify(scoreRollouts(request))) },
  }
  const checks = [
    ['the bundle imports nothing but the WebAssembly module', imports, [`./${WASM}`]],
    ['scores in workerd equal those of the addon', await post(request), expected],
    [
      'a role that ChatML does not have is refused with its code',
      await post({ ...request, messages: [{ role: 'narrator', content: 'x' }] }),
      { status: 400, body: { code: 'UNKNOWN_NAME' } },
      ({ status, body: { code } }) => ({ status, body: { code } }),
    ],
  ]
  let numFailed = 0
  for (const [name, got, wanted, part = (whole) => whole] of checks) {
    const passed = isDeepStrictEqual(part(got), wanted)
    numFailed += Number(!passed)
    process.stdout.write(
      `${name}: ${passed ? 'ok' : `FAILED\n${JSON.stringify(got)}\n${JSON.stringify(wanted)}`}\n`,
    )
  }
  process.stdout.write(`edge: ${checks.length - numFailed} passed, ${numFailed} failed\n`)
  return numFailed === 0 ? 0 : 1
}

/** Four answers as an engine would send them: right, wrong, right, and without the form that was asked for. */
async function sampleRequest() {
  const { CharTokenizer, createRenderer } = await import('fulmar')
  const tokenizer = new CharTokenizer()
  const [stopId] = createRenderer(tokenizer, { name: 'chatml' }).stopIds
  const answers = ['[ANSWER] 42', '[ANSWER] 41', '[ANSWER] 42', '42']
  const logProb = (row, t, scale) => -scale * (1 + ((row * 7 + t * 3) % 11))
  return {
    messages: [{ role: 'user', content: 'What is 17 + 25? Answer as [ANSWER] <int>.' }],
    target: 42,
    rollouts: answers.map((answer, row) => {
      const ids = [...tokenizer.encode(answer).ids, stopId]
      const logProbs = (scale) => ids.map((_, t) => logProb(row, t, scale))
      return { ids, sampledLogProbs: logProbs(0.25), logProbs: logProbs(0.22) }
    }),
  }
}
