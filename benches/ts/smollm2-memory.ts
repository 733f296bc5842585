/**
 * The most memory that a process holds which does nothing but train SmolLM2-135M, ours and that of transformers on PyTorch; goal 23.
 *
 * Both take steps of all weights with AdamW. Ours runs once as it is and once with `recomputeActivations`.
 */

import { spawnSync } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Decoder, describeBuild, Rng } from 'fulmar'
import { type Figure, type Goal, hand, type Report, readOptions, say } from './measure.js'
import { Rivals } from './smollm2-rivals.js'
import { idsOf, MODEL, readModel, TRAINED } from './smollm2-step.js'

const THREADS = 2
const STEPS = 2
/** Memory differs by a percent from one process to the next. */
const PROCESSES = 2
const GOAL: Goal = { atMost: 0.4 }
/** A process begins with the most that its parent held: this one stays far below what it measures. */
const OURS = fileURLToPath(new URL('./smollm2-memory-ours.js', import.meta.url))

const options = readOptions({ rounds: PROCESSES })
const folder = await mkdtemp(join(tmpdir(), 'fulmar-bench-'))
try {
  await writeModel()
  hand(await measure())
} finally {
  await rm(folder, { recursive: true })
}

async function writeModel(): Promise<void> {
  using decoder = await Decoder.fromGguf(await readModel())
  await decoder.saveFolder(folder)
}

async function measure(): Promise<Report> {
  const samples = { all: [] as number[], recomputed: [] as number[], theirs: [] as number[] }
  let versions: Readonly<Record<string, string>> = {}
  let skipped: string | undefined
  for (let at = 0; at < PROCESSES; at++) {
    say(`process ${at + 1} of ${PROCESSES}`)
    for (const activations of ['all', 'recomputed'] as const) samples[activations].push(ofOurs(activations))
    using rivals = await Rivals.start(['transformers'], places(), {
      threads: THREADS,
      isAsked: options.rival,
    })
    versions = rivals.versions
    skipped = rivals.skipped('transformers')
    if (skipped === undefined) samples.theirs.push(await ofTransformers(rivals))
  }
  const rival = skipped === undefined ? { name: 'transformers', samples: samples.theirs } : { skipped }
  const figure = (work: string, ours: number[]): Figure => ({ work, unit: 'MiB', ours, rival, goal: GOAL })
  const { lanes, threads } = describeBuild()
  return {
    setting: { threads, lanes, rows: TRAINED[0], length: TRAINED[1], steps: STEPS },
    checks: [],
    figures: [
      figure(`most resident memory, training ${TRAINED.join(' x ')}`, samples.all),
      figure('the same with recomputed activations', samples.recomputed),
    ],
    notes: ['transformers keeps all activations in both lines'],
    versions,
  }
}

function places() {
  return { folder, gguf: MODEL }
}

function ofOurs(activations: 'all' | 'recomputed'): number {
  const { status, stdout, stderr } = spawnSync(process.execPath, [OURS, activations, String(STEPS)], {
    encoding: 'utf8',
  })
  if (status !== 0) throw new Error(`smollm2-memory-ours must end well: got status ${status}: ${stderr}`)
  return Number(stdout)
}

async function ofTransformers(rivals: Rivals): Promise<number> {
  using rng = Rng.fromSeed(1)
  let most = Number.NaN
  for (let step = 0; step < STEPS; step++)
    most = (await rivals.ask('transformers', { kind: 'train', ids: idsOf(rng, ...TRAINED) })).peakMiB
  return most
}
