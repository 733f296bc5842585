/**
 * SmolLM2-135M-Instruct in f32: prompts read, tokens drawn, one training step; against transformers on PyTorch, onnxruntime, candle and llama.cpp.
 * Tokens are also drawn from weights stored as bf16, against transformers in bf16, and from those rounded to 8 bits for rollouts, against
 * engines in f32 and llama.cpp. Goals 22 and 23.
 *
 * What is drawn is greedy, past any end token, and only the tokens after the first count: of ours, the time of 33 less that of one. A
 * training step is forward, a clipped loss on every token but the first, backward, clipping by norm, and AdamW on all weights.
 */

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { AdamW, Decoder, describeBuild, Engine, generate, Rng } from 'fulmar'
import {
  alternate,
  type Figure,
  type Goal,
  hand,
  median,
  type Report,
  readOptions,
  type Sample,
  say,
} from './measure.js'
import { type EngineName, Rivals } from './smollm2-rivals.js'
import { batchOf, idsOf, LEARNING_RATE, MODEL, readModel, TRAINED, trainStep } from './smollm2-step.js'

const THREADS = 2
/** Operations of a token: a multiplication and an addition a weight on the way there, twice as many on the way back. */
const TOKEN_FLOPS = { prefill: 2, train: 6 } as const
const WARMUP = 1
const CONTEXT = 64
const DRAWN = 32
/** Sequences that are drawn at once. */
const ROWS = [1, 8, 32]
/** Among which the patience is shared. */
const NUM_WORKS = 12
const ENGINES: readonly EngineName[] = [
  'transformers',
  'transformers bf16',
  'onnxruntime',
  'candle',
  'llama.cpp Q4_1',
]
/** The largest difference of two correct f32 forward passes of this size, in nats. */
const LOG_PROB_TOLERANCE = 1e-3
/** The mean distance of log-probs, where one side computes in bf16 and the other only stores it. */
const BF16_TOLERANCE = 0.2
/** The mean distance of log-probs of weights of 8 bits from those of the decoder, in nats. */
const Q8_TOLERANCE = 0.2

/** One kind of work: `rows` sequences of `length` ids, compared with engines that have a goal or are shown for comparison only. */
interface Work {
  readonly work: string
  readonly kind: 'prefill' | 'decode' | 'train'
  readonly rows: number
  readonly length: number
  readonly decoder: Decoder
  /** Weights that tokens are drawn with. @default 'same' */
  readonly weights?: 'same' | 'q8'
  readonly rivals: readonly (readonly [EngineName, Goal?])[]
}

const options = readOptions({ rounds: 7 })
using decoder = await Decoder.fromGguf(await readModel())
using rng = Rng.fromSeed(1)
let optimizer: AdamW | undefined
const folder = await mkdtemp(join(tmpdir(), 'fulmar-bench-'))
try {
  say('writing the weights for the rivals, and starting these')
  if (options.rival) await decoder.saveFolder(folder)
  const places = { folder, gguf: MODEL }
  using rivals = await Rivals.start(ENGINES, places, { threads: THREADS, isAsked: options.rival })
  hand(await measure(rivals))
} finally {
  await rm(folder, { recursive: true })
}

/** llama.cpp has a sixth of the bytes to read, which tells at batch 1: no goal for f32 there. */
function worksInF32(): Work[] {
  const read = (rows: number, length: number): Work => ({
    ...{ work: `prefill ${rows} x ${length}`, kind: 'prefill', rows, length, decoder },
    rivals: [
      ['transformers', { atLeast: 1 }],
      ['candle', { atLeast: 1 }],
    ],
  })
  const train: Work = {
    ...{ work: `training step ${TRAINED.join(' x ')}`, kind: 'train', decoder },
    ...{ rows: TRAINED[0], length: TRAINED[1] },
    rivals: [['transformers', { atLeast: 1.2 }]],
  }
  const drawn = ROWS.map((rows) =>
    decoding(decoder, rows, [
      ['transformers', { atLeast: rows === 32 ? 1.9 : 2 }],
      ['onnxruntime', { atLeast: 1 }],
      ['candle', { atLeast: 1 }],
      rows === 1 ? ['llama.cpp Q4_1'] : ['llama.cpp Q4_1', { atLeast: 1 }],
    ]),
  )
  return [read(1, 512), read(8, 256), ...drawn, train]
}

/** Both sides round their weights; the others show what an exact sampler would take. */
function worksIn8Bits(): Work[] {
  return ROWS.map((rows) => ({
    ...decoding(decoder, rows, [
      ['transformers'],
      ['onnxruntime'],
      rows === 1 ? ['llama.cpp Q4_1'] : ['llama.cpp Q4_1', { atLeast: 1 }],
    ]),
    work: `decode ${DRAWN} tokens, batch ${rows}, after ${CONTEXT}, q8`,
    weights: 'q8',
  }))
}

function decoding(from: Decoder, rows: number, rivals: Work['rivals']): Work {
  const work = `decode ${DRAWN} tokens, batch ${rows}, after ${CONTEXT}, ${from.dtype}`
  return { ...{ work, kind: 'decode', rows, length: CONTEXT, decoder: from }, rivals }
}

async function measure(rivals: Rivals): Promise<Report> {
  const checks = await compare(rivals)
  const [figures, notes]: [Figure[], string[]] = [[], []]
  const take = async (work: Work) => {
    say(work.work)
    const { kind, rows, length } = work
    const { disturbance, ...measured } = await measureWork(rivals, work)
    figures.push(...measured.figures)
    notes.push(`${work.work}: ${rows * (kind === 'decode' ? DRAWN : length)} tokens; ${disturbance}`)
    if (kind !== 'decode')
      notes.push(await shareOfPeak(rivals, kind, rows * length, median(measured.figures[0]?.ours ?? [])))
  }
  for (const work of worksInF32()) await take(work)
  checks.push(await compareRounded())
  for (const work of worksIn8Bits()) await take(work)
  optimizer?.[Symbol.dispose]()
  using narrow = await Decoder.fromGguf(await readModel(), { dtype: 'bf16' })
  checks.push(...(await compareNarrow(rivals, narrow)))
  for (const rows of ROWS) await take(decoding(narrow, rows, [['transformers bf16', { atLeast: 2 }]]))
  const { lanes, threads } = describeBuild()
  return { setting: { threads, lanes }, checks, figures, notes, versions: rivals.versions }
}

/** Ours and all engines that do this work, in turns. */
async function measureWork(
  rivals: Rivals,
  { work, kind, rows, length, decoder: own, weights = 'same', rivals: beside }: Work,
) {
  const ids = idsOf(rng, rows, length)
  const there = beside.filter(([name]) => rivals.skipped(name) === undefined)
  const theirs = there.map(([name]) => [name, () => timed(rivals, name, kind, ids)] as const)
  const ours = async (): Promise<Sample> => ({ value: await run(own, kind, ids, weights) })
  const limits = { ...options, patienceMs: options.patienceMs / NUM_WORKS, warmup: WARMUP }
  const contestants: Readonly<Record<string, () => Promise<Sample>>> = { ours, ...Object.fromEntries(theirs) }
  const { of, disturbance } = await alternate(contestants, limits)
  const figures = beside.map(([name, goal]): Figure => {
    const skipped = rivals.skipped(name)
    const rival = skipped === undefined ? { name, samples: of(name).warm } : { skipped }
    return { work, unit: 'ms', ours: of('ours').warm, rival, ...(goal && { goal }) }
  })
  return { figures, disturbance }
}

/** The share of the machine's peak that the work reaches. Head and embedding are one matrix; a prompt's head reads one row, and is not counted. */
async function shareOfPeak(
  rivals: Rivals,
  kind: 'prefill' | 'train',
  numTokens: number,
  ms: number,
): Promise<string> {
  const numWeights =
    decoder.numParameters - (kind === 'prefill' ? decoder.config.vocab_size * decoder.config.hidden_size : 0)
  const flops = (TOKEN_FLOPS[kind] * numWeights * numTokens * 1000) / ms
  const ours = `${kind} of ${numTokens} tokens: ${(flops / 1e9).toFixed(0)} GFLOP/s in products`
  if (rivals.skipped('transformers')) return `${ours}; share of the peak: skipped, as torch measures it`
  const { flops: peak = Number.NaN } = await rivals.ask('transformers', { kind: 'peak' })
  return `${ours}, ${((100 * flops) / peak).toFixed(0)} % of one large product's ${(peak / 1e9).toFixed(0)}`
}

/** All that compute in f32 score the same sequences alike and draw the same tokens. */
async function compare(rivals: Rivals): Promise<string[]> {
  const ids = idsOf(rng, 2, CONTEXT)
  const checks: string[] = []
  const ours = await drawGreedy(decoder, ids, 8)
  for (const name of ['transformers', 'onnxruntime', 'candle'] as const) {
    if (rivals.skipped(name) !== undefined) continue
    const { ids: drawn = [] } = await rivals.ask(name, { kind: 'generate', ids, tokens: 8 })
    if (JSON.stringify(drawn) !== JSON.stringify(ours))
      throw new Error(`greedy tokens of ${name} must be ours: got ${drawn} and ${ours}`)
    checks.push(`greedy tokens of ours and of ${name}: equal`)
  }
  for (const name of ['transformers', 'candle'] as const)
    if (rivals.skipped(name) === undefined) checks.push(await compareLogProbs(rivals, name, ids))
  if (rivals.skipped('llama.cpp Q4_1') === undefined)
    checks.push('tokens of llama.cpp: not compared, as its products are of 8 bits and less')
  return checks
}

async function compareLogProbs(rivals: Rivals, name: EngineName, ids: number[][]): Promise<string> {
  const apart = await logProbsApart(rivals, name, decoder, ids)
  const worst = Math.max(...apart)
  if (!(worst <= LOG_PROB_TOLERANCE))
    throw new Error(`log-probs of ${name} must be within ${LOG_PROB_TOLERANCE} nats: got ${worst}`)
  return `log-probs of ${apart.length} tokens, ours and those of ${name}: at most ${worst.toExponential(1)} nats apart`
}

/** Weights of 16 bits say about the same on both sides; tokens may differ. */
async function compareNarrow(rivals: Rivals, narrow: Decoder): Promise<string[]> {
  if (rivals.skipped('transformers bf16') !== undefined) return []
  const apart = await logProbsApart(rivals, 'transformers bf16', narrow, idsOf(rng, 2, CONTEXT))
  const mean = apart.reduce((sum, one) => sum + one, 0) / apart.length
  if (!(mean <= BF16_TOLERANCE))
    throw new Error(`log-probs in bf16 must be within ${BF16_TOLERANCE} nats: got ${mean}`)
  return [
    `log-probs of ${apart.length} tokens, our bf16 weights and transformers in bf16: ${mean.toFixed(3)} nats apart in the mean`,
  ]
}

/** The difference of each log-prob of the engine from that of our decoder. */
async function logProbsApart(rivals: Rivals, name: EngineName, own: Decoder, ids: number[][]) {
  const { logProbs = [] } = await rivals.ask(name, { kind: 'score', ids })
  const { logProb } = await own.score(batchOf(ids, (at) => at > 0))
  return ids.flatMap((row, r) =>
    row.slice(1).map((_, at) => {
      const ours = logProb[r * row.length + at + 1] ?? Number.NaN
      return Math.abs((logProbs[r]?.[at] ?? Number.NaN) - ours)
    }),
  )
}

async function run(
  own: Decoder,
  kind: Work['kind'],
  ids: number[][],
  weights: 'same' | 'q8',
): Promise<number> {
  if (kind === 'train') return await clocked(() => train(ids))
  if (kind === 'prefill')
    return await clocked(() => own.score(batchOf(ids, (at, length) => at === length - 1)))
  return (
    (await clocked(() => drawGreedy(own, ids, DRAWN + 1, weights))) -
    (await clocked(() => drawGreedy(own, ids, 1, weights)))
  )
}

async function timed(rivals: Rivals, name: EngineName, kind: Work['kind'], ids: number[][]): Promise<Sample> {
  const isDecode = kind === 'decode'
  const request = isDecode ? { kind: 'generate' as const, ids, tokens: DRAWN + 1 } : { kind, ids }
  const { ms, drawMs = Number.NaN, cpuMs } = await rivals.ask(name, request)
  return { value: isDecode ? drawMs : ms, rivalCpuMs: cpuMs }
}

async function train(ids: number[][]): Promise<void> {
  optimizer ??= new AdamW(decoder, { learningRate: LEARNING_RATE })
  await trainStep(decoder, optimizer, ids)
}

/** The log-probs of tokens drawn with weights of 8 bits are near those that the decoder gives the same tokens. */
async function compareRounded(): Promise<string> {
  const ids = idsOf(rng, 2, CONTEXT)
  using engine = new Engine(decoder, { weights: 'q8' })
  const gaps: number[] = []
  for (const [seed, row] of ids.entries()) {
    const drawn = await engine.generate({ ids: Uint32Array.from(row), seed }, { maxTokens: 32, stopIds: [] })
    const whole = [...row, ...drawn.ids]
    const { logProb } = await decoder.score(batchOf([whole], (at) => at >= row.length))
    for (const [at, value] of drawn.logProbs.entries())
      gaps.push(Math.abs(value - (logProb[row.length + at] ?? Number.NaN)))
  }
  const mean = gaps.reduce((sum, gap) => sum + gap, 0) / gaps.length
  if (!(mean <= Q8_TOLERANCE))
    throw new Error(`log-probs of 8 bits must be within ${Q8_TOLERANCE} nats: got ${mean}`)
  return `log-probs of ${gaps.length} tokens drawn with 8 bits, and those of the decoder: ${mean.toFixed(3)} nats apart in the mean`
}

async function drawGreedy(
  own: Decoder,
  ids: number[][],
  maxTokens: number,
  weights: 'same' | 'q8' = 'same',
): Promise<number[][]> {
  if (weights === 'q8') {
    using engine = new Engine(own, { weights })
    const one = (row: number[]) =>
      engine.generate({ ids: Uint32Array.from(row), seed: 0 }, { maxTokens, temperature: 0, stopIds: [] })
    return (await Promise.all(ids.map(one))).map((drawn) => [...drawn.ids])
  }
  const prompts = ids.map((row) => ({ ids: Uint32Array.from(row), seed: 0 }))
  const generated = await generate(own, prompts, { maxTokens, temperature: 0, stopIds: [] })
  return generated.map((one) => [...one.ids])
}

async function clocked(work: () => Promise<unknown>): Promise<number> {
  const startMs = performance.now()
  await work()
  return performance.now() - startMs
}
