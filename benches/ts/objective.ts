/**
 * Log-probs with their gradients, value estimates, group advantages and draws, in Rust and from Node, compared with PyTorch, TorchRL, TRL and
 * transformers. Goals 10, 11, 12 and 14.
 */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { groupAdvantage, Rng } from 'fulmar'
import { rustProgram } from './cargo-peer.js'
import {
  alternate,
  type Figure,
  type Goal,
  hand,
  type Report,
  ROOT,
  readOptions,
  type Sample,
  say,
} from './measure.js'
import { Peer, PYTHON_ENVIRONMENT } from './peer.js'
import { installTrl, TUNED_ENVIRONMENT } from './trl.js'

const THREADS = 2
const [TOKENS, VOCAB] = [256, 151_936]
const NUM_REWARDS = 8192
const GROUP_SIZE = 8
const SHAPES = [
  [64, 1000],
  [4096, 128],
] as const
const DONE_SHARE = 0.01
/** The largest difference of two correct f32 results, relative to 1 and to their size. */
const TOLERANCE = 2e-4

interface Answer {
  readonly us: number
  readonly cpuMs?: number
  readonly values: readonly number[]
}

interface Work {
  readonly work: string
  /** The request of both programs. */
  readonly kind: string
  readonly repeats: number
  readonly goal: Goal
  readonly rival: string
}

const WORKS: readonly Work[] = [
  ...work(`log-probs and entropies of ${TOKENS} tokens, V = ${VOCAB}`, 'forward', 3, 2.2, 'PyTorch'),
  ...work('the same and the gradient by the logits, in place', 'both', 2, 3, 'PyTorch'),
  ...SHAPES.flatMap(([rows, time]) =>
    ['gae', 'tdLambda', 'vtrace'].flatMap((kind) =>
      work(`${kind}, ${rows} x ${time}`, `${kind}:${rows}x${time}`, 20, 20, 'TorchRL, vectorised'),
    ),
  ),
  ...work(`group advantage, ${NUM_REWARDS} rewards`, 'advantage', 200, 30, 'TRL'),
  ...['temperature', 'topK50TopP0.9', 'topP0.9'].flatMap((cut) =>
    work(`draw, V = ${VOCAB}, ${cut}`, `draw:${cut}`, 20, 50, 'transformers'),
  ),
  ...work(`draw, V = ${VOCAB}, flatTopP0.9`, 'draw:flatTopP0.9', 10, 10, 'transformers'),
]

function work(name: string, kind: string, repeats: number, goal: number, rival: string): Work[] {
  return [{ work: name, kind, repeats, goal: { atLeast: goal }, rival }]
}

const options = readOptions({ rounds: 7 })
const folder = mkdtempSync(join(tmpdir(), 'fulmar-objective-'))
try {
  const rewards = writeInputs()
  hand(await measure(rewards))
} finally {
  rmSync(folder, { recursive: true, force: true })
}

function writeInputs(): Float64Array {
  using rng = Rng.fromSeed(5)
  const write = (name: string, values: NodeJS.ArrayBufferView) => writeFileSync(join(folder, name), values)
  const normals = (length: number, scale: number) => Float32Array.from({ length }, () => scale * rng.normal())
  write('logits.f32', normals(TOKENS * VOCAB, 2.5))
  write(
    'ids.u32',
    Uint32Array.from({ length: TOKENS }, () => rng.below(VOCAB)),
  )
  write('peaked.f32', normals(VOCAB, 2.5))
  write('flat.f32', normals(VOCAB, 0.01))
  const rewards = Float64Array.from({ length: NUM_REWARDS }, () => Math.fround(rng.uniform()))
  write('rewards.f64', rewards)
  for (const [rows, time] of SHAPES) {
    const size = rows * time
    const floats = [1, 1, 1, 0.1, 0.1].map((scale) => normals(size, scale))
    const done = Float32Array.from({ length: size }, () => Number(rng.uniform() < DONE_SHARE))
    write(
      `steps-${rows}x${time}.f32`,
      Buffer.concat([...floats, done].map((column) => Buffer.from(column.buffer))),
    )
  }
  return rewards
}

async function measure(rewards: Float64Array): Promise<Report> {
  const rust = rustProgram('bench_objective', [folder])
  if ('skipped' in rust) throw new Error(`the bench needs its program: ${rust.skipped}`)
  using ours = rust
  await ours.answer()
  using peer = startPeer()
  const started = (await peer?.answer()) as { versions: Record<string, string>; threads: number } | undefined
  const [checks, figures, notes]: [string[], Figure[], string[]] = [[], [], []]
  for (const { work, kind, repeats, goal, rival } of WORKS) {
    say(work)
    if (peer) checks.push(`${work}: ${await compare(kind, ours, peer)}`)
    const limits = { ...options, patienceMs: options.patienceMs / WORKS.length, warmup: 1 }
    const contestants: Record<string, () => Promise<Sample>> = {
      rust: () => timed(ours, kind, repeats),
      ...(kind === 'advantage' && { node: async () => ({ value: inNode(rewards, repeats) }) }),
      ...(peer && { rival: () => timed(peer, kind, Math.max(1, Math.round(repeats / 10))) }),
    }
    const rounds = await alternate<string>(contestants, limits)
    const theirs = peer ? { name: rival, samples: rounds.of('rival').warm } : { skipped: 'no PyTorch' }
    for (const side of Object.keys(contestants).filter((name) => name !== 'rival')) {
      figures.push({ work: `${work}, ${side}`, unit: 'us', ours: rounds.of(side).warm, rival: theirs, goal })
    }
    notes.push(`${work}: ${rounds.disturbance}`)
  }
  return {
    setting: { threads: THREADS, dtype: 'f32' },
    checks,
    figures,
    notes,
    versions: started?.versions ?? {},
  }
}

/** Both give the same; of draws, the same number of tokens is kept. */
async function compare(kind: string, ours: Peer, peer: Peer): Promise<string> {
  const [mine, theirs] = [await ask(ours, kind, 1), await ask(peer, kind, 1)]
  if (mine.values.length !== theirs.values.length) {
    throw new Error(`${kind} must give ${theirs.values.length} values: got ${mine.values.length}`)
  }
  const apart = mine.values.map((value, index) => {
    const expected = theirs.values[index] ?? Number.NaN
    return Math.abs(value - expected) / Math.max(1, Math.abs(expected))
  })
  const worst = Math.max(...apart)
  if (!(worst <= TOLERANCE))
    throw new Error(`${kind} must be within ${TOLERANCE} of the rival's: got ${worst}`)
  return `${apart.length} values at most ${worst.toExponential(1)} apart`
}

async function timed(peer: Peer, kind: string, repeats: number): Promise<Sample> {
  const { us, cpuMs } = await ask(peer, kind, repeats)
  return { value: us, rivalCpuMs: cpuMs ?? (us * repeats) / 1000 }
}

async function ask(peer: Peer, kind: string, repeats: number): Promise<Answer> {
  return (await peer.ask(`${kind} ${repeats}`)) as Answer
}

function inNode(rewards: Float64Array, repeats: number): number {
  const startMs = performance.now()
  for (let repeat = 0; repeat < repeats; repeat++)
    groupAdvantage({ rewards, groupSize: GROUP_SIZE, stdFloor: 0 })
  return ((performance.now() - startMs) * 1000) / repeats
}

function startPeer(): Peer | undefined {
  const installed = options.rival ? installTrl() : { skipped: '--no-rival' }
  if ('skipped' in installed) return undefined
  const program = fileURLToPath(new URL('benches/rival/trl/objective.py', ROOT))
  const environment = { OMP_NUM_THREADS: String(THREADS), ...PYTHON_ENVIRONMENT, ...TUNED_ENVIRONMENT }
  return new Peer('PyTorch', installed.python, [program, folder, String(THREADS)], environment)
}
