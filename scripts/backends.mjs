/**
 * `node scripts/backends.mjs`: asks the addon and the WebAssembly module the same questions, tests/backends/answers.mjs, and compares the
 * answers: ids, masks, indices, plans and draws must be equal, losses, advantages and estimates within 2 units in the last place, and
 * what goes through matrix products within its golden tolerance.
 */

import { asProgram, root, run } from './steps.mjs'

const PROGRAM = `${root}tests/backends/answers.mjs`
const CONDITIONS = { native: [], wasm: ['--conditions=fulmar-wasm'] }
/** Largest distance between two right answers of a kind, in units in the last place. */
const ULPS = { exact: 0, ulps: 2 }
/** The golden tolerances of log-probs and of weights after a step, see tests/golden/model/HOW.md. */
const MODEL_TOLERANCE = 1e-4

const TYPES = { Float32Array, Float64Array, Uint8Array, Uint32Array, Int32Array }

asProgram(async () => {
  const [native, wasm] = [await answers('native'), await answers('wasm')]
  const counts = { passed: 0, failed: 0 }
  for (const [name, wanted] of native) {
    const wrong = difference(name, wanted, wasm.get(name))
    counts[wrong === undefined ? 'passed' : 'failed'] += 1
    if (wrong !== undefined) process.stdout.write(`FAILED ${name}: ${wrong}\n`)
  }
  const more = [...wasm.keys()].filter((name) => !native.has(name)).length
  process.stdout.write(`backends: ${counts.passed} passed, ${counts.failed + more} failed, 0 skipped\n`)
  return counts.failed + more === 0 ? 0 : 1
})

/** The outputs of a backend, by name. */
async function answers(backend) {
  const { code, output } = await run(process.execPath, [...CONDITIONS[backend], PROGRAM])
  if (code !== 0) throw new Error(`${backend} must answer: got exit status ${code}\n${output.slice(-2000)}`)
  const lines = output
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
  const named = new Map(lines.map(({ name, type, base64 }) => [name, arrayOf(type, base64)]))
  if (named.size !== lines.length)
    throw new Error(`every answer must have a name of its own: got ${lines.length} of ${named.size}`)
  return named
}

function arrayOf(type, base64) {
  return new TYPES[type](Uint8Array.from(Buffer.from(base64, 'base64')).buffer)
}

/** The first problem of `got`, or `undefined`. */
function difference(name, wanted, got) {
  if (got?.length !== wanted.length) return `${wanted.length} values must be given: got ${got?.length}`
  const [kind] = name.split(' ', 1)
  const apart = kind === 'model' ? (x, y) => Math.abs(x - y) : (x, y) => ulps(wanted, x, y)
  const most = kind === 'model' ? MODEL_TOLERANCE : ULPS[kind]
  const at = wanted.findIndex((value, index) => !(apart(value, got[index]) <= most))
  if (at === -1) return undefined
  return `value ${at} must be within ${most} of ${wanted[at]}: got ${got[at]}`
}

/** Values between `x` and `y` in the precision of `array`; 0 and -0 are one, so are two that are no numbers. */
function ulps(array, x, y) {
  if (Object.is(x, y) || x === y) return 0
  return Math.abs(Number(place(array, x) - place(array, y)))
}

/** The index of a float in the order of all floats. */
function place(array, value) {
  const view = new DataView(new ArrayBuffer(8))
  if (array instanceof Float32Array) view.setFloat32(0, value)
  else view.setFloat64(0, value)
  const bits = array instanceof Float32Array ? BigInt(view.getInt32(0)) : view.getBigInt64(0)
  const sign = array instanceof Float32Array ? 1n << 31n : 1n << 63n
  return bits < 0n ? -(bits + sign) : bits
}
