/**
 * Times a clone of the last commit with empty caches, from the first command of the README
 * to the tests after a change. Takes about an hour, and downloads what a newcomer downloads.
 */

import { spawn } from 'node:child_process'
import { appendFile, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { hand, ROOT, say, verdict } from './measure.js'

/** Seconds that each may take on two cores; where no figure for a slow machine is set, only the fast one has a goal. */
const GOALS = {
  'quickstart, until training starts': { fast: 150 },
  'quickstart, whole': { fast: 270, slow: 540 },
  'npm test, cold': { fast: 720, slow: 1680 },
  'npm test, nothing changed': { fast: 300 },
  'ready --changed, one file of ts/src': { fast: 60 },
  'ready --changed, one crate that few need': { fast: 180 },
} as const
type Work = keyof typeof GOALS

/** A change that no test sees, in a file of each kind. */
const TYPESCRIPT_FILE = 'ts/src/train/schedule.ts'
const CRATE_FILE = 'crates/fulmar-ted/src/lib.rs'
const CHANGE = '\n// A change.\n'

const folder = await mkdtemp(join(tmpdir(), 'fulmar-build-'))
const caches = { CARGO_HOME: join(folder, 'cargo'), npm_config_cache: join(folder, 'npm') }
// scripts/bench.mjs sets the number of threads; a user does not.
const env = { ...process.env, ...caches, RAYON_NUM_THREADS: undefined }

const seconds = new Map<Work, number>()
let stages: Record<string, number> = {}
try {
  const newcomer = await clone('newcomer')
  const quickstart = await timed(newcomer, 'npm', 'run', 'quickstart')
  keep('quickstart, until training starts', quickstart.setUpS)
  keep('quickstart, whole', quickstart.wholeS)
  await rm(newcomer, { recursive: true })
  await Promise.all(Object.values(caches).map((cache) => rm(cache, { recursive: true })))
  const contributor = await clone('contributor')
  const cold = await timed(contributor, 'npm', 'test')
  stages = stageTable(cold.output)
  keep('npm test, cold', cold.wholeS)
  keep('npm test, nothing changed', (await timed(contributor, 'npm', 'test')).wholeS)
  await measureChange(contributor, TYPESCRIPT_FILE, 'ready --changed, one file of ts/src')
  await measureChange(contributor, CRATE_FILE, 'ready --changed, one crate that few need')
} finally {
  await rm(folder, { recursive: true, force: true })
}

hand({
  setting: { caches: 'empty', changed: [TYPESCRIPT_FILE, CRATE_FILE] },
  checks: ['every command ended with status 0'],
  figures: [...seconds].map(([work, value]) => ({ work, unit: 's', ours: [value] })),
  profileMs: Object.fromEntries(Object.entries(stages).map(([stage, value]) => [stage, 1000 * value])),
  notes: [...seconds].map(([work, value]) => `${work}: ${judged(value, GOALS[work])}`),
  versions: {},
})

async function clone(name: string): Promise<string> {
  const target = join(folder, name)
  await timed(folder, 'git', 'clone', '--quiet', fileURLToPath(ROOT), target)
  return target
}

async function measureChange(repository: string, file: string, work: Work): Promise<void> {
  await appendFile(join(repository, file), CHANGE)
  keep(work, (await timed(repository, 'npm', 'run', 'ready', '--', '--changed')).wholeS)
  await timed(repository, 'git', 'checkout', '--quiet', file)
}

function keep(work: Work, value: number): void {
  say(`${work}: ${value.toFixed(0)} s`)
  seconds.set(work, value)
}

function judged(value: number, goal: { readonly fast: number; readonly slow?: number }): string {
  const fast = `on a fast machine ${verdict(value, goal.fast, 's')}`
  return goal.slow === undefined ? fast : `on a slow machine ${verdict(value, goal.slow, 's')}; ${fast}`
}

interface Run {
  /** Seconds until the last step of setting up was done, which the quickstart writes to standard error; NaN without one. */
  readonly setUpS: number
  readonly wholeS: number
  readonly output: string
}

/** Runs a command to its end. Throws its last lines where it does not end with status 0. */
function timed(cwd: string, command: string, ...args: readonly string[]): Promise<Run> {
  const start = performance.now()
  const sinceS = () => (performance.now() - start) / 1000
  const child = spawn(command, args, { cwd, env, stdio: ['ignore', 'pipe', 'pipe'] })
  let [output, errors, numSteps, setUpS] = ['', '', 0, Number.NaN]
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors += text
    const numDone = errors.match(/^setting up: .* s$/gm)?.length ?? 0
    if (numDone > numSteps) [numSteps, setUpS] = [numDone, sinceS()]
  })
  return new Promise((resolve, reject) => {
    child.on('error', reject)
    child.on('close', (code) => {
      if (code === 0) resolve({ setUpS, wholeS: sinceS(), output })
      else reject(new Error(`${command} ${args.join(' ')} failed:\n${(output + errors).slice(-4000)}`))
    })
  })
}

/** Seconds of each stage, from the table that `npm test` prints at its end. */
function stageTable(output: string): Record<string, number> {
  const rows = output.matchAll(/^([\w-]+) +\d+ +\d+ +\d+ +([\d.]+)$/gm)
  return Object.fromEntries([...rows].map(([, stage = '', value]) => [stage, Number(value)]))
}
