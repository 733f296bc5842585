/** A plan for 200,000 sequences in rows of 4,096 tokens, compared with TRL's best fit decreasing; goal 13. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Rng } from 'fulmar'
import { type Groups, type PackOptions, pack } from 'fulmar/model'
import { alternate, hand, type Report, ROOT, readOptions } from './measure.js'
import { Peer, PYTHON_ENVIRONMENT } from './peer.js'
import { installTrl } from './trl.js'

const NUM_SEQUENCES = 200_000
const CAPACITY = 4096
const GOAL = { atLeast: 1000 }
/** Plans of one sample: one is too short to time. */
const REPEATS = 5
const MOVES = 'TRL also moves the sequences, here of a byte a token; a plan only says where they go'
const STRATEGIES = ['bestFit', 'firstFit'] as const

interface Pass {
  readonly ms: number
  readonly cpuMs: number
  readonly rows: number
  readonly tokens: number
}

const options = readOptions({ rounds: 7 })
using rng = Rng.fromSeed(3)
const lengths = Uint32Array.from({ length: NUM_SEQUENCES }, () =>
  Math.ceil(CAPACITY * rng.uniform() * rng.uniform()),
)
const numTokens = lengths.reduce((sum, length) => sum + length, 0)
const folder = mkdtempSync(join(tmpdir(), 'fulmar-packing-'))
try {
  hand(await measure())
} finally {
  rmSync(folder, { recursive: true, force: true })
}

async function measure(): Promise<Report> {
  const plans = STRATEGIES.map((strategy) => [strategy, checked({ capacity: CAPACITY, strategy })] as const)
  const checks = plans.map(([strategy, plan]) => fillOf(strategy, plan.offsets.length - 1))
  using peer = startPeer()
  const versions = peer ? ((await peer.answer()) as { versions: Record<string, string> }).versions : {}
  if (peer) {
    const { rows, tokens } = (await peer.ask('pack')) as Pass
    if (tokens !== numTokens) throw new Error(`TRL must pack ${numTokens} tokens: got ${tokens}`)
    const ours = (plans[0]?.[1].offsets.length ?? 0) - 1
    if (ours > rows) throw new Error(`a plan must take at most TRL's ${rows} rows: got ${ours}`)
    checks.push(fillOf('TRL', rows))
  }
  const timed = (strategy: (typeof STRATEGIES)[number]) => () => {
    const start = performance.now()
    for (let repeat = 0; repeat < REPEATS; repeat++) pack(lengths, { capacity: CAPACITY, strategy })
    return { value: (performance.now() - start) / REPEATS }
  }
  const ours = { bestFit: timed('bestFit'), firstFit: timed('firstFit') }
  const trl = async (rival: Peer) => {
    const { ms, cpuMs } = (await rival.ask('pack')) as Pass
    return { value: ms, rivalCpuMs: cpuMs }
  }
  const contestants = peer ? { ...ours, trl: () => trl(peer) } : ours
  const rounds = await alternate<string>(contestants, { ...options, warmup: 1 })
  const rival = peer ? { name: 'TRL, bfd', samples: rounds.of('trl').warm } : { skipped: 'no TRL' }
  const figures = STRATEGIES.map((strategy) => ({
    work: `${NUM_SEQUENCES} sequences into rows of ${CAPACITY}, ${strategy}`,
    unit: 'ms' as const,
    ours: rounds.of(strategy).warm,
    rival,
    ...(strategy === 'bestFit' && { goal: GOAL }),
    cold: { ours: rounds.of(strategy).cold, ...(peer && { rival: rounds.of('trl').cold }) },
  }))
  const setting = { numSequences: NUM_SEQUENCES, capacity: CAPACITY, numTokens, threads: 1 }
  return { setting, checks, figures, notes: [rounds.disturbance, MOVES], versions }
}

/** Returns a plan, after checking that it has every sequence once, in a row with room for it. */
function checked(packing: PackOptions): Groups {
  const plan = pack(lengths, packing)
  const seen = new Uint8Array(NUM_SEQUENCES)
  for (let row = 0; row + 1 < plan.offsets.length; row++) {
    const items = plan.items.subarray(plan.offsets[row], plan.offsets[row + 1])
    let length = 0
    for (const item of items) {
      length += lengths[item] ?? 0
      seen[item] = (seen[item] ?? 0) + 1
    }
    if (length > CAPACITY) throw new Error(`row ${row} must hold ${CAPACITY} tokens: got ${length}`)
  }
  if (seen.some((times) => times !== 1)) throw new Error('every sequence must be packed once')
  return plan
}

function fillOf(name: string, rows: number): string {
  return `${name}: ${rows} rows, ${((100 * numTokens) / (rows * CAPACITY)).toFixed(4)} % filled`
}

function startPeer(): Peer | undefined {
  const installed = options.rival ? installTrl() : { skipped: '--no-rival' }
  if ('skipped' in installed) return undefined
  const file = join(folder, 'lengths.bin')
  writeFileSync(file, lengths)
  const program = fileURLToPath(new URL('benches/rival/trl/packing.py', ROOT))
  return new Peer('TRL', installed.python, [program, file, String(CAPACITY)], PYTHON_ENVIRONMENT)
}
