/**
 * The cost of a call of the addon, compared with an addon in C that uses only Node-API.
 *
 * Each of ours has a twin with the same arguments and the same kind of answer. Ours also catch panics, give errors a
 * code and hold their object under a lock; the twins do none of that.
 */

import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { CharTokenizer, Rng } from 'fulmar'
import { type Figure, hand, ROOT, readOptions } from './measure.js'

/** The parts of the addon that are called without their TypeScript faces. */
interface Addon {
  readonly PanicProbe: new (now: boolean) => { free(): void }
  readonly Rng: new (seed: number) => { uniform(): number }
  readonly CharTokenizer: new (options: string) => { decode(ids: Uint32Array, skipSpecial: boolean): string }
}

/** See benches/rival/node-api/boundary.c. */
interface Twins {
  readonly Twin: new () => {
    noop(): void
    number(): number
    decode(ids: Uint32Array, skip: boolean): string
  }
}

const CALLS = 100_000
const GOAL = { atMost: 1.5 }
const NAME = 'raw Node-API'

const options = readOptions({ rounds: 15 })
const require = createRequire(import.meta.url)
const addon: Addon = require('#addon')
const compiled = options.rival ? compileTwins() : { skipped: '--no-rival' }
const figures: Figure[] = []
const [none, some] = [new Uint32Array(0), Uint32Array.from({ length: 64 }, (_, index) => index)]

const probe = new addon.PanicProbe(false)
const rng = new addon.Rng(1)
const tokenizer = new addon.CharTokenizer('{}')
using publicRng = Rng.fromSeed(1)
using publicTokenizer = new CharTokenizer()
const twin = 'skipped' in compiled ? undefined : new compiled.twins.Twin()

if (twin) {
  const lengths = [tokenizer.decode(some, false).length, twin.decode(some, false).length]
  if (lengths.some((length) => length !== some.length))
    throw new Error(`texts must have 64 letters: got ${lengths}`)
}

measure(
  'no-op method, bare addon',
  (count) => {
    for (let call = 0; call < count; call++) probe.free()
  },
  twin &&
    ((count) => {
      for (let call = 0; call < count; call++) twin.noop()
    }),
)
measure(
  'method that answers a number, bare addon',
  (count) => {
    for (let call = 0; call < count; call++) rng.uniform()
  },
  twin &&
    ((count) => {
      for (let call = 0; call < count; call++) twin.number()
    }),
)
for (const ids of [none, some]) {
  measure(
    `method with a typed array of ${ids.length} ids, bare addon`,
    (count) => {
      for (let call = 0; call < count; call++) tokenizer.decode(ids, false)
    },
    twin &&
      ((count) => {
        for (let call = 0; call < count; call++) twin.decode(ids, false)
      }),
  )
}
measure('Rng.uniform()', (count) => {
  for (let call = 0; call < count; call++) publicRng.uniform()
})
measure('CharTokenizer.decode(64 ids)', (count) => {
  for (let call = 0; call < count; call++) publicTokenizer.decode(some)
})

hand({
  setting: { callsPerSample: CALLS, threads: 1 },
  checks: twin ? ['texts of 64 ids have 64 letters on both sides'] : [],
  figures,
  notes: [
    'processor time, so the load of the machine does not count',
    'ours also catch panics, give errors a code and lock their object; the twins do not',
    'copied at the crossing, once: ids, offsets and mask of Decoder.score and forward, gradients of backward (they run on another thread)',
    'borrowed at the crossing, no copy: losses, advantages, token draws, decode, prompts of a generation, safetensors to read',
    'handed out without a copy: log-probs, entropies, gradients, safetensors; the sequences of a generation are gathered once',
  ],
  versions:
    'skipped' in compiled ? {} : { cc: compiled.compiler, nodeApi: process.versions.napi ?? 'unknown' },
})

/** Calls something so many times. Each has a loop of its own, which the engine then compiles for that call alone. */
type Calls = (count: number) => void

/** One figure in nanoseconds a call; ours and the rival in turns, after two rounds that are dropped. */
function measure(work: string, ours: Calls, rival?: Calls): void {
  const [ourNs, rivalNs]: [number[], number[]] = [[], []]
  for (let round = -2; round < options.rounds; round++) {
    const [own, theirs] = [cpuNs(ours), rival ? cpuNs(rival) : 0]
    if (round < 0) continue
    ourNs.push(own)
    rivalNs.push(theirs)
  }
  const skipped = 'skipped' in compiled ? { rival: compiled } : {}
  const beside = rival ? { rival: { name: NAME, samples: rivalNs }, goal: GOAL } : skipped
  figures.push({ work, unit: 'ns', ours: ourNs, ...beside })
}

/** Processor time of one call. The process computes on one thread, so other programs do not count. */
function cpuNs(calls: Calls): number {
  const before = process.cpuUsage()
  calls(CALLS)
  const { user, system } = process.cpuUsage(before)
  return ((user + system) * 1000) / CALLS
}

/** Compiles and loads the twins, or says why not. */
function compileTwins(): { readonly twins: Twins; readonly compiler: string } | { readonly skipped: string } {
  if (process.platform !== 'linux') return { skipped: 'the twin is only compiled on Linux' }
  const include = join(dirname(process.execPath), '../include/node')
  if (!existsSync(join(include, 'node_api.h'))) return { skipped: 'node_api.h is not beside this Node' }
  const source = fileURLToPath(new URL('benches/rival/node-api/boundary.c', ROOT))
  const target = fileURLToPath(new URL('build/benches/boundary.node', ROOT))
  mkdirSync(dirname(target), { recursive: true })
  const args = [
    '-O3',
    '-std=c11',
    '-shared',
    '-fPIC',
    '-Wall',
    '-Wextra',
    `-I${include}`,
    source,
    '-o',
    target,
  ]
  const made = spawnSync('cc', args, { encoding: 'utf8' })
  if (made.status !== 0)
    return { skipped: `cc failed: ${made.stderr?.trim().split('\n')[0] ?? 'not installed'}` }
  const version = spawnSync('cc', ['-dumpfullversion'], { encoding: 'utf8' }).stdout.trim()
  return { twins: require(target), compiler: version }
}
