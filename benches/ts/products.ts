/**
 * Products of rows by a weight of SmolLM2-135M in Rust, compared with PyTorch and with what this machine can do at most: its fused
 * multiply-adds of a second and the bytes that it reads of a second, both measured in the same round.
 */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Rng } from 'fulmar'
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
const [INPUTS, OUTPUTS, ROWS_MAX] = [576, 1536, 2048]
/** Weights that take turns: 226 MB in f32, more than a cache holds. */
const COPIES = 64
const ROWS = [1, 8, 32, 256, 2048]
/** Multiplies and adds of a sample: about 30 ms of the peak. */
const SAMPLE_FLOPS = 1.2e10
const REPEATS_MIN = 64

/** The goal of a share of what the machine can do. */
const SHARE: Goal = { atLeast: 0.8 }

/** The kinds of products with the largest difference to PyTorch's, relative to 1, and the bytes of a stored weight. */
const KINDS = [
  { kind: 'f32', work: 'in f32', tolerance: 2e-4, bytes: 4 },
  { kind: 'bf16', work: 'by weights in bf16', tolerance: 0.1, bytes: 2 },
  { kind: 'rounded', work: 'with both operands in bf16', tolerance: 0.1, bytes: 2 },
] as const

interface Answer {
  readonly us: number
  readonly cpuMs?: number
  readonly values: readonly number[]
}

const options = readOptions({ rounds: 7 })
const folder = mkdtempSync(join(tmpdir(), 'fulmar-products-'))
try {
  writeInputs()
  hand(await measure())
} finally {
  rmSync(folder, { recursive: true, force: true })
}

function writeInputs(): void {
  using rng = Rng.fromSeed(5)
  const write = (name: string, count: number, scale: number) =>
    writeFileSync(
      join(folder, name),
      Float32Array.from({ length: count }, () => scale * rng.normal()),
    )
  write('rows.f32', ROWS_MAX * INPUTS, 1)
  write('weight.f32', OUTPUTS * INPUTS, INPUTS ** -0.5)
}

async function measure(): Promise<Report> {
  const sizes = [INPUTS, OUTPUTS, COPIES].map(String)
  const rust = rustProgram('bench_products', [folder, ...sizes])
  if ('skipped' in rust) throw new Error(`the bench needs its program: ${rust.skipped}`)
  using ours = rust
  await ours.answer()
  using peer = startPeer(sizes)
  const started = (await peer?.answer()) as { versions: Record<string, string> } | undefined
  const [checks, figures, notes]: [string[], Figure[], string[]] = [[], [], []]
  for (const { kind, work, tolerance, bytes } of KINDS) {
    for (const rows of ROWS) {
      const name = `${rows} rows of ${INPUTS} by ${INPUTS} x ${OUTPUTS}, ${work}`
      say(name)
      if (peer) checks.push(`${name}: ${await compare(ours, peer, `${kind} ${rows}`, tolerance)}`)
      const limits = { ...options, patienceMs: options.patienceMs / (KINDS.length * ROWS.length), warmup: 1 }
      const request = `${kind} ${rows} ${repeatsOf(rows)}`
      const rounds = await alternate<string>(
        {
          ours: () => timed(ours, request),
          ...(peer && { rival: () => timed(peer, request) }),
          peak: () => atPeak(ours, rows),
          read: () => ofReading(ours, bytes),
        },
        limits,
      )
      const samples = (side: string) => rounds.of(side).warm
      const figure = (label: string, rival: NonNullable<Figure['rival']>, goal?: Goal): void => {
        figures.push({
          work: `${name}${label}`,
          unit: 'us',
          ours: samples('ours'),
          rival,
          ...(goal && { goal }),
        })
      }
      figure('', peer ? { name: 'PyTorch', samples: samples('rival') } : { skipped: 'no PyTorch' })
      // The peak is that of f32.
      if (rows === ROWS_MAX && kind !== 'rounded') {
        const skipped = samples('peak').some(Number.isNaN)
        const peak = { name: 'the peak of fused multiply-adds', samples: samples('peak') }
        figure(', of the peak', skipped ? { skipped: 'the peak is measured on x86-64' } : peak, SHARE)
      }
      if (rows === 1) figure(', of reading', { name: 'reading the weight', samples: samples('read') }, SHARE)
      notes.push(`${name}: ${rounds.disturbance}`)
    }
  }
  return {
    setting: { threads: THREADS, copies: COPIES },
    checks,
    figures,
    notes,
    versions: started?.versions ?? {},
  }
}

/** The most that both differ, relative to 1 and to the size of the results. */
async function compare(ours: Peer, peer: Peer, work: string, tolerance: number): Promise<string> {
  const [mine, theirs] = (await Promise.all([ours, peer].map((side) => side.ask(`${work} 1`)))) as [
    Answer,
    Answer,
  ]
  if (mine.values.length !== theirs.values.length)
    throw new Error(`${work} must give ${theirs.values.length} values: got ${mine.values.length}`)
  const apart = mine.values.map((value, index) => Math.abs(value - (theirs.values[index] ?? Number.NaN)))
  const worst = Math.max(...apart)
  if (!(worst <= tolerance)) throw new Error(`${work} must be within ${tolerance} of PyTorch's: got ${worst}`)
  return `${apart.length} values at most ${worst.toExponential(1)} apart`
}

async function timed(peer: Peer, request: string): Promise<Sample> {
  const { us, cpuMs } = (await peer.ask(request)) as Answer
  const repeats = Number(request.split(' ').at(-1))
  return { value: us, rivalCpuMs: cpuMs ?? (us * repeats * THREADS) / 1000 }
}

/** The time of a product at the peak of this machine, measured now. */
async function atPeak(ours: Peer, rows: number): Promise<Sample> {
  const { flops, cpuMs } = (await ours.ask('peak')) as { flops: number | null; cpuMs: number }
  return { value: flops === null ? Number.NaN : (flopsOf(rows) / flops) * 1e6, rivalCpuMs: cpuMs }
}

/** The time of reading a weight once, measured now. */
async function ofReading(ours: Peer, bytesEach: number): Promise<Sample> {
  const { bytes, cpuMs } = (await ours.ask('read')) as { bytes: number; cpuMs: number }
  return { value: ((INPUTS * OUTPUTS * bytesEach) / bytes) * 1e6, rivalCpuMs: cpuMs }
}

function flopsOf(rows: number): number {
  return 2 * rows * INPUTS * OUTPUTS
}

function repeatsOf(rows: number): number {
  return Math.max(REPEATS_MIN, Math.round(SAMPLE_FLOPS / flopsOf(rows) / 8))
}

function startPeer(sizes: readonly string[]): Peer | undefined {
  const installed = options.rival ? installTrl() : { skipped: '--no-rival' }
  if ('skipped' in installed) return undefined
  const program = fileURLToPath(new URL('benches/rival/trl/products.py', ROOT))
  const environment = { OMP_NUM_THREADS: String(THREADS), ...PYTHON_ENVIRONMENT, ...TUNED_ENVIRONMENT }
  return new Peer('PyTorch', installed.python, [program, folder, ...sizes, String(THREADS)], environment)
}
