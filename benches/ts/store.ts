/**
 * Durable records of 4 KB: acknowledged a second at group commit, compared with a plain file that is written in the same pieces
 * with `fdatasync` after each; goal 9.
 */

import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { rustProgram } from './cargo-peer.js'
import { alternate, type Figure, hand, quantile, type Report, ROOT, readOptions, say } from './measure.js'

const WARMUP = 1
/** Records of a group. */
const PIECES = [32, 64, 128, 256, 512]
const RATE_GOAL = 20_000
const COMMIT_MS_GOAL = 5
/** Of the raw rate: raw over ours. */
const SHARE_GOAL = { atLeast: 0.7 }

const options = readOptions({ rounds: 9 })
// Under `target/` and not in the system's temporary folder, which may be in memory.
const parent = fileURLToPath(new URL('target/', ROOT))
mkdirSync(parent, { recursive: true })
const folder = mkdtempSync(`${parent}bench-store-`)
try {
  hand(await measure())
} finally {
  rmSync(folder, { recursive: true, force: true })
}

async function measure(): Promise<Report> {
  const peer = rustProgram('bench_store', [folder])
  if ('skipped' in peer) throw new Error(`the bench needs its program: ${peer.skipped}`)
  using program = peer
  await program.answer()
  const [figures, checks, notes]: [Figure[], string[], string[]] = [[], [], []]
  for (const piece of PIECES) {
    say(`groups of ${piece}`)
    await program.ask(`store ${piece}`)
    const { wrong, of } = (await program.ask(`check ${piece}`)) as { wrong: number; of: number }
    if (wrong > 0) throw new Error(`records must be what was written: got ${wrong} of ${of} that are not`)
    checks.push(`groups of ${piece}: ${of} records equal after the store was opened again`)
    const commitsMs: number[] = []
    const timed = (request: string) => async () => {
      const start = performance.now()
      const { us, commitsMs: some } = (await program.ask(`${request} ${piece}`)) as {
        us: number
        commitsMs: number[]
      }
      if (request === 'store') commitsMs.push(...some)
      return { value: us, rivalCpuMs: performance.now() - start }
    }
    const contestants = options.rival
      ? { store: timed('store'), raw: timed('raw') }
      : { store: timed('store') }
    const limits = { ...options, patienceMs: options.patienceMs / PIECES.length, warmup: WARMUP }
    const rounds = await alternate<string>(contestants, limits)
    const { cold, warm } = rounds.of('store')
    const raw = options.rival ? rounds.of('raw') : undefined
    const rival = raw ? { name: 'write + fdatasync', samples: raw.warm } : { skipped: '--no-rival' }
    figures.push({
      work: `a record of 4 KB, ${piece} a commit`,
      unit: 'us',
      ours: warm,
      rival,
      goal: SHARE_GOAL,
      cold: { ours: cold, ...(raw && { rival: raw.cold }) },
    })
    notes.push(rateNote(piece, warm, commitsMs), `groups of ${piece}: ${rounds.disturbance}`)
  }
  return { setting: { recordBytes: 4096, pieces: PIECES }, checks, figures, notes, versions: {} }
}

/** The measures of the goal: durable records per second, and the latency. */
function rateNote(piece: number, recordUs: readonly number[], commitsMs: readonly number[]): string {
  const rate = (q: number) => 1e6 / quantile(recordUs, q)
  const [middle, worst] = [rate(0.5), rate(0.9)]
  const [wait, slow] = [quantile(commitsMs, 0.5), quantile(commitsMs, 0.9)]
  const short = [
    ...(worst < RATE_GOAL ? [`short by ${(RATE_GOAL - worst).toFixed(0)}/s`] : []),
    ...(slow > COMMIT_MS_GOAL ? [`short by ${(slow - COMMIT_MS_GOAL).toFixed(2)} ms`] : []),
  ]
  const figures = `${middle.toFixed(0)} acknowledged/s (worst tenth ${worst.toFixed(0)}), commit ${wait.toFixed(2)} ms (worst tenth ${slow.toFixed(2)})`
  return `groups of ${piece}: ${figures}; goal ${RATE_GOAL}/s at <= ${COMMIT_MS_GOAL} ms: ${short.join(', ') || 'met'}`
}
