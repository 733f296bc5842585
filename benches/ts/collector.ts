/**
 * 4,096 rollouts in flight in one process with a policy that answers from a script: what a turn costs, against torchtitan and against
 * the same loop written by hand on asyncio, and early and late in a rollout; how long the event loop is kept, how long it takes to stop
 * them all; goals 3 and 18.
 */

import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { fileURLToPath } from 'node:url'
import {
  askCrowd,
  compareIds,
  GROUP_SIZE,
  IN_FLIGHT,
  rollouterOf,
  runCrowd,
  talkingCrowd,
  toolCrowd,
} from './collector-crowd.js'
import { alternate, hand, median, type Report, ROOT, readOptions, type Sample, verdict } from './measure.js'
import { Peer, PYTHON_ENVIRONMENT, type Skipped } from './peer.js'
import { installTrl } from './trl.js'

const TURNS = 8
/** torchtitan takes milliseconds a turn. */
const TOOL_TURNS = 4
const LONG_TURNS = 40
/** So many that a pause of the garbage collector is spread over them. */
const LONG_ROLLOUTS = 64
const TURN_GOAL = { atLeast: 2.5 }
/** A loop by hand has less to do. */
const BARE_GOAL = { atLeast: 1 }
const LAG_MS_GOAL = 20
const CANCEL_MS_GOAL = 100

const options = readOptions({ rounds: 7 })
const folder = mkdtempSync(join(tmpdir(), 'fulmar-bench-'))
const [talking, tools, long] = [
  talkingCrowd(TURNS),
  toolCrowd(TOOL_TURNS, folder),
  talkingCrowd(LONG_TURNS),
] as const
const peers = startPeers()
try {
  hand(await measure())
} finally {
  for (const peer of Object.values(peers)) if (peer instanceof Peer) peer[Symbol.dispose]()
  for (const crowd of [talking, tools, long]) crowd.renderer[Symbol.dispose]()
  rmSync(folder, { recursive: true })
}

/** Rivals that run, or why they do not. */
function startPeers(): Readonly<Record<'asyncio' | 'shipped' | 'tuned', Peer | Skipped>> {
  const script = (name: string) => fileURLToPath(new URL(`benches/rival/${name}/collector.py`, ROOT))
  const installed = options.rival ? installTrl() : { skipped: '--no-rival' }
  const torchtitan = (variant: string) =>
    'skipped' in installed
      ? installed
      : new Peer(
          `torchtitan ${variant}`,
          installed.python,
          [script('torchtitan'), folder, variant],
          PYTHON_ENVIRONMENT,
        )
  const missing = whyNoPython()
  return {
    asyncio: missing ?? new Peer('asyncio', 'python3', [script('asyncio')], PYTHON_ENVIRONMENT),
    shipped: torchtitan('shipped'),
    tuned: torchtitan('tuned'),
  }
}

function whyNoPython(): Skipped | undefined {
  if (!options.rival) return { skipped: '--no-rival' }
  return spawnSync('python3', ['--version']).status === 0
    ? undefined
    : { skipped: 'python3 is not installed' }
}

async function measure(): Promise<Report> {
  const checks = [`${IN_FLIGHT} requests waited at once, and every rollout had all its turns`]
  const versions: Record<string, string> = {}
  const theirs: Record<string, () => Promise<Sample>> = {}
  for (const [name, peer] of Object.entries(peers)) {
    if ('skipped' in peer) continue
    Object.assign(versions, ((await peer.answer()) as { versions: Record<string, string> }).versions)
    const crowd = name === 'asyncio' ? talking : tools
    checks.push(await compareIds(name, peer, crowd))
    theirs[name] = () => askCrowd(peer, crowd)
  }
  const lags: number[] = []
  const cancels: number[] = []
  const rounds = await alternate<string>(
    {
      talking: () => watched(() => runCrowd(talking), lags),
      tools: () => runCrowd(tools),
      ...theirs,
      early: async () => ({ value: (await longRollout()).early }),
      late: async () => ({ value: (await longRollout()).late }),
      cancel: async () => {
        const value = await cancelAll()
        cancels.push(value)
        return { value }
      },
    },
    { ...options, warmup: 1 },
  )
  const worst = (all: readonly number[], goal: number) => {
    const values = rounds.kept.map((index) => all[index] ?? Number.NaN)
    return `${median(values).toFixed(1)} (median of the rounds) and ${Math.max(...values).toFixed(1)} (worst): ${verdict(Math.max(...values), goal, 'ms')}`
  }
  const figure = (name: string, work: string, unit: 'us' | 'ms') => {
    const { cold, warm } = rounds.of(name)
    return { work, unit, ours: warm, cold: { ours: cold } }
  }
  const against = (name: keyof typeof peers, shown: string) => {
    const peer = peers[name]
    return 'skipped' in peer ? peer : { name: shown, samples: rounds.of(name).warm }
  }
  const toolTurn = figure('tools', `a turn with a tool, ${IN_FLIGHT} rollouts in flight, Qwen3`, 'us')
  return {
    setting: {
      ...{ inFlight: IN_FLIGHT, groupSize: GROUP_SIZE },
      ...{ turns: TURNS, toolTurns: TOOL_TURNS, longTurns: LONG_TURNS, longRollouts: LONG_ROLLOUTS },
    },
    checks,
    figures: [
      { ...toolTurn, rival: against('shipped', 'torchtitan'), goal: TURN_GOAL },
      { ...toolTurn, rival: against('tuned', 'torchtitan, tuned'), goal: TURN_GOAL },
      {
        ...figure('talking', `a turn, ${IN_FLIGHT} rollouts in flight, characters`, 'us'),
        rival: against('asyncio', 'asyncio by hand'),
        goal: BARE_GOAL,
      },
      {
        ...figure('late', `a turn of a rollout alone, the last ${LONG_TURNS / 4} of ${LONG_TURNS}`, 'us'),
        rival: { name: `its first ${LONG_TURNS / 4}`, samples: rounds.of('early').warm },
        goal: { atMost: 1.2 },
      },
      figure('cancel', `to stop ${IN_FLIGHT} rollouts`, 'ms'),
    ],
    notes: [
      'asyncio by hand has no deadline, no status, no provenance and no rubric',
      `event-loop lag, 99 of 100 below ${worst(lags, LAG_MS_GOAL)}`,
      `all stopped within ${worst(cancels, CANCEL_MS_GOAL)}`,
      rounds.disturbance,
    ],
    versions,
  }
}

/** A sample, and into `lags` by how many milliseconds 99 of 100 timers were late meanwhile at most. */
async function watched(take: () => Promise<Sample>, lags: number[]): Promise<Sample> {
  const lag = monitorEventLoopDelay({ resolution: 1 })
  lag.enable()
  const sample = await take()
  lag.disable()
  lags.push(lag.percentile(99) / 1e6)
  return sample
}

/** Long rollouts, one after another: microseconds a turn at its beginning and at its end. */
async function longRollout(): Promise<{ early: number; late: number }> {
  const times: number[] = []
  const reply = () => {
    times.push(performance.now())
    return long.answer
  }
  const rollouter = rollouterOf(long, { groupSize: 1, reply })
  for (let groupId = 0; groupId < LONG_ROLLOUTS; groupId++) {
    using _ = await rollouter.runGroup({ sample: 0, groupId })
  }
  const turn = (first: number, end: number) => {
    const spans = Array.from({ length: times.length }, (_, at) => at).filter(
      (at) => at % LONG_TURNS >= first && at % LONG_TURNS < end - 1,
    )
    return (1000 * spans.reduce((sum, at) => sum + (times[at + 1] ?? 0) - (times[at] ?? 0), 0)) / spans.length
  }
  return { early: turn(0, LONG_TURNS / 4), late: turn((3 * LONG_TURNS) / 4, LONG_TURNS) }
}

/** Milliseconds from the abort until every rollout has ended. */
async function cancelAll(): Promise<number> {
  const abort = new AbortController()
  let numWaiting = 0
  const reply = () => {
    numWaiting += 1
    return new Promise<never>(() => {})
  }
  const rollouter = rollouterOf(talking, { reply })
  const groups = Array.from({ length: IN_FLIGHT / GROUP_SIZE }, (_, groupId) =>
    rollouter.runGroup({ sample: 0, groupId, signal: abort.signal }),
  )
  const ended = Promise.allSettled(groups)
  while (numWaiting < IN_FLIGHT) await new Promise((resolve) => setImmediate(resolve))
  const startMs = performance.now()
  abort.abort()
  await ended
  return performance.now() - startMs
}
