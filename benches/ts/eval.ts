/**
 * `fulmar eval` of 512 rollouts against a server that answers at once, compared with `vf-eval` of verifiers on the same questions. Of ours the
 * whole process is timed. `vf-eval` starts a Python for each rollout, so it runs fewer, and its own start is not counted.
 */

import { spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { alternate, hand, ROOT, readOptions, type Sample } from './measure.js'
import { Peer, PYTHON_ENVIRONMENT, type Skipped } from './peer.js'
import { installPython } from './python-rival.js'

const PROBLEMS = 64
const ANSWERS = 8
/** Problems of the rival: one rollout takes seconds of processor time. */
const RIVAL_PROBLEMS = 4
const CONCURRENCY = 32
const GOAL = { atLeast: 3 }
const RIVAL = fileURLToPath(new URL('benches/rival/verifiers', ROOT))
const FULMAR = fileURLToPath(new URL('dist/cli/main.js', ROOT))
const TASK = fileURLToPath(new URL('eval-task.js', import.meta.url))
const NULL_HARNESS = ['--env.agent.harness.id', 'null', '--env.agent.runtime.type', 'subprocess']

/** A rollout of the rival, in part. */
interface Trace {
  readonly ok: boolean
  readonly rewards: Readonly<Record<string, { readonly score: number }>>
  readonly timing: { readonly start: number; readonly scoring: { readonly end: number } }
}

const options = readOptions({ rounds: 7 })
const installed: { readonly python: string } | Skipped = options.rival
  ? installPython('verifiers', 'about 200 MB to download')
  : { skipped: '--no-rival' }
using stub = new Peer('the stub', process.execPath, [
  fileURLToPath(new URL('openai-stub.js', import.meta.url)),
  'Oslo',
])
const { url } = (await stub.answer()) as { url: string }
const folder = mkdtempSync(join(tmpdir(), 'fulmar-bench-'))
try {
  const theirs = 'python' in installed && { theirs: () => askRival(installed.python) }
  const contestants: Readonly<Record<string, () => Promise<Sample>>> = { ours: askOurs, ...theirs }
  const { of, disturbance } = await alternate(contestants, { ...options, warmup: 1 })
  const [ours, rival] = [of('ours'), theirs && of('theirs')]
  hand({
    setting: {
      ...{ rollouts: PROBLEMS * ANSWERS, rivalRollouts: RIVAL_PROBLEMS * ANSWERS },
      concurrency: CONCURRENCY,
    },
    checks: ['every rollout of both sides was answered, and has the reward 1'],
    figures: [
      {
        ...{ work: 'a rollout, wall time', unit: 'ms', ours: ours.warm, goal: GOAL },
        cold: { ours: ours.cold, ...(rival && { rival: rival.cold }) },
        rival: 'skipped' in installed ? installed : { name: 'vf-eval', samples: rival ? rival.warm : [] },
      },
    ],
    notes: [
      'ours is a whole process; of vf-eval the time from the start of its first rollout to the end of its last',
      disturbance,
    ],
    versions: { ...('python' in installed && { verifiers: '0.4.0' }) },
  })
} finally {
  rmSync(folder, { recursive: true, force: true })
}

/** Milliseconds of wall time a rollout. */
async function askOurs(): Promise<Sample> {
  const args = ['-m', 'any', '-b', `${url}/v1`, '-n', `${PROBLEMS}`, '-r', `${ANSWERS}`]
  const output = mkdtempSync(join(folder, 'run-'))
  const startMs = performance.now()
  const printed = await run(process.execPath, [
    FULMAR,
    'eval',
    TASK,
    ...args,
    '-c',
    `${CONCURRENCY}`,
    '--json',
    '--save',
    output,
  ])
  const ms = performance.now() - startMs
  const { numScored, meanReward } = JSON.parse(printed)
  if (numScored !== PROBLEMS * ANSWERS || meanReward !== 1)
    throw new Error(`${PROBLEMS * ANSWERS} rollouts must have the reward 1: got ${printed}`)
  return { value: ms / numScored, rivalCpuMs: ms }
}

async function askRival(python: string): Promise<Sample> {
  const output = mkdtempSync(join(folder, 'run-'))
  const client = ['--client.base-url', `${url}/v1`, '--client.api-key-var', 'FULMAR_BENCH_KEY', '-m', 'any']
  const sizes = ['-n', `${RIVAL_PROBLEMS}`, '-r', `${ANSWERS}`, '-c', `${CONCURRENCY}`]
  const args = ['fulmar_bench', ...NULL_HARNESS, ...client, ...sizes, '--output-dir', output]
  await run(join(dirname(python), 'vf-eval'), [...args, '--no-push', '--no-rich'])
  const traces = await readTraces(output)
  const isRight = ({ ok, rewards }: Trace) => ok && rewards.is_right?.score === 1
  if (traces.length !== RIVAL_PROBLEMS * ANSWERS || !traces.every(isRight))
    throw new Error(
      `${RIVAL_PROBLEMS * ANSWERS} rollouts of vf-eval must have the reward 1: got ${traces.length}`,
    )
  const start = Math.min(...traces.map(({ timing }) => timing.start))
  const end = Math.max(...traces.map(({ timing }) => timing.scoring.end))
  return { value: (1000 * (end - start)) / traces.length, rivalCpuMs: 1000 * (end - start) }
}

async function readTraces(output: string): Promise<Trace[]> {
  const [run = ''] = await readdir(output)
  const lines = readFileSync(join(output, run, 'traces.jsonl'), 'utf8')
    .trim()
    .split('\n')
  return lines.flatMap((line) => JSON.parse(line).traces as Trace[])
}

/** Standard output of a program. */
async function run(command: string, args: readonly string[]): Promise<string> {
  const env = { ...process.env, ...PYTHON_ENVIRONMENT, PYTHONPATH: RIVAL, FULMAR_BENCH_KEY: 'none' }
  const child = spawn(command, args, { env, cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] })
  const closed = new Promise<number | null>((resolve) => child.on('close', resolve))
  const [printed, complaints] = await Promise.all([text(child.stdout), text(child.stderr)])
  const code = await closed
  if (code !== 0) throw new Error(`${command} must end with 0: got ${code}\n${complaints.slice(-4000)}`)
  return printed
}
