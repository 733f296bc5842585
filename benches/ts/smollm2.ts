/**
 * SmolLM2-135M-Instruct in f32: prompts read, tokens drawn, one training step; against transformers on PyTorch. Goals 22 and 23.
 *
 * What is drawn is greedy, past any end token, and only the tokens after the first count: the time of 33 less that of one. A
 * training step is forward, a clipped loss on every token but the first, backward, clipping by norm, and AdamW on all weights.
 */

import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { AdamW, Decoder, describeBuild, GRPOLoss, generate, Rng } from 'fulmar'
import {
  alternate,
  type Figure,
  type Goal,
  hand,
  median,
  type Report,
  ROOT,
  readOptions,
  type Sample,
  say,
} from './measure.js'
import { Peer, PYTHON_ENVIRONMENT } from './peer.js'
import { installTrl, TUNED_ENVIRONMENT } from './trl.js'

const MODEL = fileURLToPath(new URL('models/SmolLM2-135M-Instruct.Q4_1.gguf', ROOT))
const RIVAL = fileURLToPath(new URL('benches/rival/trl/smollm2.py', ROOT))
const THREADS = 2
/** Operations of a token: a multiplication and an addition a weight on the way there, twice as many on the way back. */
const TOKEN_FLOPS = { prefill: 2, train: 6 } as const
const WARMUP = 1
const VOCAB = 49_152
const CONTEXT = 64
const DRAWN = 32
/** The widest that two correct f32 forward passes of this size lie apart, in nats. */
const LOG_PROB_TOLERANCE = 1e-3

interface Answer {
  readonly ms: number
  readonly cpuMs: number
  readonly peakMiB: number
  /** Operations a second. */
  readonly flops?: number
  readonly logProbs?: readonly (readonly number[])[]
  readonly ids?: readonly (readonly number[])[]
}

/** One kind of work: `rows` sequences of `length` ids. */
interface Work {
  readonly work: string
  readonly kind: 'prefill' | 'decode' | 'train'
  readonly rows: number
  readonly length: number
  readonly goal: Goal
}

const WORKS: readonly Work[] = [
  { work: 'prefill 1 x 512', kind: 'prefill', rows: 1, length: 512, goal: { atLeast: 1 } },
  { work: 'prefill 8 x 256', kind: 'prefill', rows: 8, length: 256, goal: { atLeast: 1 } },
  ...[1, 8, 32].map((rows) => ({
    work: `decode ${DRAWN} tokens, batch ${rows}, after ${CONTEXT}`,
    kind: 'decode' as const,
    rows,
    length: CONTEXT,
    goal: { atLeast: rows === 32 ? 1.9 : 2 },
  })),
  { work: 'training step 8 x 256', kind: 'train', rows: 8, length: 256, goal: { atLeast: 1.2 } },
]

const options = readOptions({ rounds: 7 })
if (!existsSync(MODEL)) throw new Error(`${MODEL} must be there: node scripts/smollm2.mjs gets it`)
using decoder = await Decoder.fromGguf(await readFile(MODEL))
using rng = Rng.fromSeed(1)
let optimizer: AdamW | undefined
hand(await measure())

async function measure(): Promise<Report> {
  const installed = options.rival ? installTrl() : { skipped: '--no-rival' }
  if ('skipped' in installed) return await against(undefined, installed.skipped)
  const folder = await mkdtemp(join(tmpdir(), 'fulmar-bench-'))
  try {
    say('writing the weights for transformers, and starting it')
    await decoder.saveFolder(folder)
    const environment = { OMP_NUM_THREADS: String(THREADS), ...PYTHON_ENVIRONMENT, ...TUNED_ENVIRONMENT }
    using peer = new Peer('transformers', installed.python, [RIVAL, folder, String(THREADS)], environment)
    return await against(peer, '')
  } finally {
    await rm(folder, { recursive: true })
  }
}

async function against(peer: Peer | undefined, skipped: string): Promise<Report> {
  const started = peer && ((await peer.answer()) as { versions: Record<string, string>; threads: number })
  if (started && started.threads !== THREADS)
    throw new Error(`torch must use ${THREADS} threads: got ${started.threads}`)
  const checks = peer ? await compare(peer) : []
  const [figures, notes]: [Figure[], string[]] = [[], []]
  for (const { work, kind, rows, length, goal } of WORKS) {
    say(work)
    const ids = idsOf(rows, length)
    const ours = async (): Promise<Sample> => ({ value: await run(kind, ids) })
    const theirs = async (): Promise<Sample> => timed(peer as Peer, kind, ids)
    const limits = { ...options, patienceMs: options.patienceMs / WORKS.length, warmup: WARMUP }
    const rounds = peer ? await alternate({ ours, theirs }, limits) : await alternate({ ours }, limits)
    const of = rounds.of as (name: string) => { readonly warm: readonly number[] }
    const rival = peer ? { name: 'transformers', samples: of('theirs').warm } : { skipped }
    figures.push({ work, unit: 'ms', ours: of('ours').warm, rival, goal })
    notes.push(`${work}: ${rows * (kind === 'decode' ? DRAWN : length)} tokens; ${rounds.disturbance}`)
    if (kind !== 'decode') notes.push(await shareOfPeak(peer, kind, rows * length, median(of('ours').warm)))
  }
  const peak = peer && ((await ask(peer, 'prefill', idsOf(1, 8))) as Answer).peakMiB
  const ourPeak = process.resourceUsage().maxRSS / 1024
  notes.push(
    `peak resident memory: ours ${ourPeak.toFixed(0)} MiB${peak ? `, transformers ${peak.toFixed(0)} MiB` : ''}`,
  )
  optimizer?.[Symbol.dispose]()
  const { lanes, threads } = describeBuild()
  return {
    setting: { threads, lanes, dtype: 'f32' },
    checks,
    figures,
    notes,
    versions: started?.versions ?? {},
  }
}

/** How much of what the machine can do the work comes to. Head and embedding are one matrix; a prompt's head reads one row, and is not counted. */
async function shareOfPeak(
  peer: Peer | undefined,
  kind: 'prefill' | 'train',
  numTokens: number,
  ms: number,
): Promise<string> {
  const numWeights = decoder.numParameters - (kind === 'prefill' ? VOCAB * decoder.config.hidden_size : 0)
  const flops = (TOKEN_FLOPS[kind] * numWeights * numTokens * 1000) / ms
  const ours = `${kind} of ${numTokens} tokens: ${(flops / 1e9).toFixed(0)} GFLOP/s in products`
  if (!peer) return `${ours}; share of the peak: skipped, as torch measures it`
  const { flops: peak = Number.NaN } = await ask(peer, 'peak', [[0]])
  return `${ours}, ${((100 * flops) / peak).toFixed(0)} % of one large product's ${(peak / 1e9).toFixed(0)}`
}

/** Both score the same sequences alike and draw the same tokens. */
async function compare(peer: Peer): Promise<string[]> {
  const ids = idsOf(2, CONTEXT)
  const { logProbs = [] } = await ask(peer, 'score', ids)
  const { logProb } = await decoder.score(batchOf(ids, (at) => at > 0))
  const apart = ids.flatMap((row, r) =>
    row
      .slice(1)
      .map((_, at) =>
        Math.abs((logProbs[r]?.[at] ?? Number.NaN) - (logProb[r * row.length + at + 1] ?? Number.NaN)),
      ),
  )
  const worst = Math.max(...apart)
  if (!(worst <= LOG_PROB_TOLERANCE))
    throw new Error(`log-probs must be within ${LOG_PROB_TOLERANCE} nats: got ${worst}`)
  const { ids: drawn = [] } = await ask(peer, 'greedy', ids, 8)
  const ours = await drawGreedy(ids, 8)
  if (JSON.stringify(drawn) !== JSON.stringify(ours))
    throw new Error(`greedy tokens must be equal: got ${drawn} and ${ours}`)
  return [
    `log-probs of ${apart.length} tokens at most ${worst.toExponential(1)} nats apart; greedy tokens equal`,
  ]
}

async function run(kind: Work['kind'], ids: number[][]): Promise<number> {
  if (kind === 'train') return await clocked(() => train(ids))
  if (kind === 'prefill')
    return await clocked(() => decoder.score(batchOf(ids, (at, length) => at === length - 1)))
  return (await clocked(() => drawGreedy(ids, DRAWN + 1))) - (await clocked(() => drawGreedy(ids, 1)))
}

async function timed(peer: Peer, kind: Work['kind'], ids: number[][]): Promise<Sample> {
  if (kind !== 'decode') {
    const { ms, cpuMs } = await ask(peer, kind, ids)
    return { value: ms, rivalCpuMs: cpuMs }
  }
  const all = await ask(peer, 'generate', ids, DRAWN + 1)
  const first = await ask(peer, 'generate', ids, 1)
  return { value: all.ms - first.ms, rivalCpuMs: all.cpuMs + first.cpuMs }
}

async function train(ids: number[][]): Promise<void> {
  optimizer ??= new AdamW(decoder, { learningRate: 1e-6 })
  const { mask, ...batch } = batchOf(ids, (at) => at > 0)
  const { logProb } = await decoder.forward({ ...batch, mask })
  const advantage = Float32Array.from(ids, () => 1)
  const { gradLogProb } = new GRPOLoss().forward({
    logProb,
    oldLogProb: logProb,
    advantage,
    mask,
    offsets: batch.offsets,
  })
  await decoder.backward(gradLogProb)
  await optimizer.step({ maxGradNorm: 1 })
}

async function drawGreedy(ids: number[][], maxTokens: number): Promise<number[][]> {
  const prompts = ids.map((row) => ({ ids: Uint32Array.from(row), seed: 0 }))
  const generated = await generate(decoder, prompts, { maxTokens, temperature: 0, stopIds: [] })
  return generated.map((one) => [...one.ids])
}

async function clocked(work: () => Promise<unknown>): Promise<number> {
  const startMs = performance.now()
  await work()
  return performance.now() - startMs
}

async function ask(peer: Peer, kind: string, ids: number[][], tokens?: number): Promise<Answer> {
  return (await peer.ask(JSON.stringify({ kind, ids, tokens }))) as Answer
}

/** Sequences that begin differently, so that none shares what another computes. */
function idsOf(rows: number, length: number): number[][] {
  return Array.from({ length: rows }, () => Array.from({ length }, () => 17 + rng.below(VOCAB - 17)))
}

function batchOf(rows: number[][], isScored: (at: number, length: number) => boolean) {
  const length = rows[0]?.length ?? 0
  return {
    ids: Uint32Array.from(rows.flat()),
    offsets: Uint32Array.from({ length: rows.length + 1 }, (_, row) => row * length),
    mask: Uint8Array.from({ length: rows.length * length }, (_, at) => Number(isScored(at % length, length))),
  }
}
