/**
 * 4,096 rollouts in flight in one process with a policy that answers from a script: what a turn costs, against the same rollouts on
 * asyncio, and early and late in a rollout; how long the event loop is kept, how long it takes to stop them all; goals 3 and 18.
 */

import { spawnSync } from 'node:child_process'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { fileURLToPath } from 'node:url'
import {
  CharTokenizer,
  createRenderer,
  type GenerateRequest,
  listDataset,
  type MessageEnv,
  Rollouter,
  ScriptedPolicy,
  type Task,
} from 'fulmar'
import { alternate, hand, median, type Report, ROOT, readOptions, type Sample, verdict } from './measure.js'
import { Peer, PYTHON_ENVIRONMENT } from './peer.js'

const IN_FLIGHT = 4096
const GROUP_SIZE = 8
const TURNS = 8
const LONG_TURNS = 40
const LAG_MS_GOAL = 20
const CANCEL_MS_GOAL = 100
const RIVAL = fileURLToPath(new URL('benches/rival/asyncio/collector.py', ROOT))
const QUESTION = 'Read the report page by page.'
const ANSWER = 'I look at the next page of the report.'
const PAGE = 'This page says nothing of the harbour.'

const options = readOptions({ rounds: 7 })
using tokenizer = new CharTokenizer()
using renderer = createRenderer(tokenizer, { name: 'chatml' })
const answer = [...tokenizer.encode(ANSWER).ids, renderer.stopIds[0] ?? 0]

const task: Task<number> = {
  name: 'pages',
  makeDataset: () => listDataset({ items: [0] }),
  makeEnv: (): MessageEnv => ({
    init: () => ({ initPromptMessages: [{ role: 'user', content: QUESTION }] }),
    step: () => ({ envMessages: [{ role: 'user', content: PAGE }] }),
    close: () => undefined,
  }),
  rewardFns: [{ name: 'turns', score: ({ turns }) => turns.length }],
  isSolved: () => true,
}

const missing = whyNoRival()
if (missing === undefined) {
  using peer = new Peer('asyncio', 'python3', [RIVAL], PYTHON_ENVIRONMENT)
  hand(await measure(peer))
} else hand(await measure(undefined))

function whyNoRival(): string | undefined {
  if (!options.rival) return '--no-rival'
  return spawnSync('python3', ['--version']).status === 0 ? undefined : 'python3 is not installed'
}

async function measure(peer: Peer | undefined): Promise<Report> {
  const started = peer && ((await peer.answer()) as { versions: Record<string, string> })
  const checks = [`${IN_FLIGHT} requests waited at once, and every rollout had ${TURNS} turns`]
  if (peer) checks.push(await compareIds(peer))
  const asyncio = peer && { asyncio: () => rivalCrowd(peer) }
  const lags: number[] = []
  const cancels: number[] = []
  const contestants: Readonly<Record<string, () => Promise<Sample>>> = {
    crowd: async () => {
      const { usPerTurn, lagMs } = await crowd()
      lags.push(lagMs)
      return { value: usPerTurn }
    },
    ...asyncio,
    early: async () => ({ value: (await longRollout()).early }),
    late: async () => ({ value: (await longRollout()).late }),
    cancel: async () => {
      const ms = await cancelAll()
      cancels.push(ms)
      return { value: ms }
    },
  }
  const rounds = await alternate(contestants, { ...options, warmup: 1 })
  const worst = (all: readonly number[], goal: number) => {
    const values = rounds.kept.map((index) => all[index] ?? Number.NaN)
    return `${median(values).toFixed(1)} (median of the rounds) and ${Math.max(...values).toFixed(1)} (worst): ${verdict(Math.max(...values), goal, 'ms')}`
  }
  const figure = (name: string, work: string, unit: 'us' | 'ms') => {
    const { cold, warm } = rounds.of(name)
    return { work, unit, ours: warm, cold: { ours: cold } }
  }
  const against = (name: string, shown: string) => ({ name: shown, samples: rounds.of(name).warm })
  return {
    setting: { inFlight: IN_FLIGHT, groupSize: GROUP_SIZE, turns: TURNS, longTurns: LONG_TURNS },
    checks,
    figures: [
      {
        ...figure('crowd', `a turn, ${IN_FLIGHT} rollouts in flight`, 'us'),
        rival: missing === undefined ? against('asyncio', 'asyncio') : { skipped: missing },
        goal: { atLeast: 2.5 },
      },
      {
        ...figure('late', `a turn of a rollout alone, the last ${LONG_TURNS / 4} of ${LONG_TURNS}`, 'us'),
        rival: against('early', `its first ${LONG_TURNS / 4}`),
        goal: { atMost: 1.2 },
      },
      figure('cancel', `to stop ${IN_FLIGHT} rollouts`, 'ms'),
    ],
    notes: [
      `event-loop lag, 99 of 100 below ${worst(lags, LAG_MS_GOAL)}`,
      `all stopped within ${worst(cancels, CANCEL_MS_GOAL)}`,
      rounds.disturbance,
    ],
    versions: started?.versions ?? {},
  }
}

interface RivalCrowd {
  readonly ms: number
  readonly cpuMs: number
  readonly ids: readonly number[]
}

/** The same rollouts on asyncio: microseconds a turn. */
async function rivalCrowd(peer: Peer): Promise<Sample> {
  const { ms, cpuMs } = await askCrowd(peer, IN_FLIGHT / GROUP_SIZE)
  return { value: (ms * 1000) / (IN_FLIGHT * TURNS), rivalCpuMs: cpuMs }
}

async function askCrowd(peer: Peer, groups: number): Promise<RivalCrowd> {
  const { alphabet, specialTokens } = tokenizer.toJSON()
  const special = Object.fromEntries(specialTokens.map((name) => [name, tokenizer.idOf(name)]))
  const said = { question: QUESTION, answer, page: PAGE }
  const sizes = { groups, group_size: GROUP_SIZE, turns: TURNS }
  return (await peer.ask(
    JSON.stringify({ kind: 'crowd', alphabet, special, ...said, ...sizes }),
  )) as RivalCrowd
}

/** Both sides' rollouts hold the same tokens. */
async function compareIds(peer: Peer): Promise<string> {
  const rollouter = rollouterOf(new ScriptedPolicy({ reply: answerSoon }), TURNS)
  using group = await rollouter.runGroup({ sample: 0, groupId: 0 })
  const last = group.rollouts[0]?.turns.at(-1)
  const ours = [...(last?.promptIds ?? []), ...(last?.completionIds ?? [])]
  const { ids } = await askCrowd(peer, 1)
  if (ids.join() !== ours.join()) throw new Error(`ids must be equal: got ${ids} and ${ours}`)
  return `the ${ids.length} tokens of a rollout on both sides: equal`
}

/** All rollouts side by side, through all their turns. */
async function crowd(): Promise<{ usPerTurn: number; lagMs: number }> {
  const rollouter = rollouterOf(new ScriptedPolicy({ reply: answerSoon }), TURNS)
  const lag = monitorEventLoopDelay({ resolution: 1 })
  lag.enable()
  const startMs = performance.now()
  const groups = await Promise.all(
    Array.from({ length: IN_FLIGHT / GROUP_SIZE }, (_, groupId) =>
      rollouter.runGroup({ sample: 0, groupId }),
    ),
  )
  const usPerTurn = ((performance.now() - startMs) * 1000) / (IN_FLIGHT * TURNS)
  lag.disable()
  for (const group of groups) {
    if (group.rollouts.some(({ turns }) => turns.length !== TURNS)) throw new Error('a rollout lacks turns')
    group[Symbol.dispose]()
  }
  return { usPerTurn, lagMs: lag.percentile(99) / 1e6 }
}

/** One long rollout: microseconds a turn at its beginning and at its end. */
async function longRollout(): Promise<{ early: number; late: number }> {
  const times: number[] = []
  const reply = () => {
    times.push(performance.now())
    return answer
  }
  const rollouter = rollouterOf(new ScriptedPolicy({ reply }), LONG_TURNS)
  for (let groupId = 0; groupId < 8; groupId++) {
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
  const rollouter = rollouterOf(new ScriptedPolicy({ reply }), TURNS)
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

/** As an engine does: the answer comes in a later turn of the event loop. */
async function answerSoon(_: GenerateRequest): Promise<readonly number[]> {
  await new Promise((resolve) => setImmediate(resolve))
  return answer
}

function rollouterOf(policy: ScriptedPolicy, maxTurns: number): Rollouter<number> {
  return new Rollouter({
    ...{ policy, task, renderer, maxTurns },
    groupSize: maxTurns === LONG_TURNS ? 1 : GROUP_SIZE,
    maxTokens: 64,
    concurrency: IN_FLIGHT,
  })
}
