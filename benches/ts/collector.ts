/**
 * 4,096 rollouts in flight in one process with a policy that answers from a script: what a turn costs, early and late in a
 * rollout, how long the event loop is kept, how long it takes to stop them all; goals 3 and 18.
 */

import { monitorEventLoopDelay } from 'node:perf_hooks'
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
import { alternate, hand, type Report, readOptions } from './measure.js'

const IN_FLIGHT = 4096
const GROUP_SIZE = 8
const TURNS = 8
const LONG_TURNS = 40

const options = readOptions({ rounds: 7 })
using tokenizer = new CharTokenizer()
using renderer = createRenderer(tokenizer, { name: 'chatml' })
const answer = [...tokenizer.encode('I look at the next page of the report.').ids, renderer.stopIds[0] ?? 0]

const task: Task<number> = {
  name: 'pages',
  makeDataset: () => listDataset({ items: [0] }),
  makeEnv: (): MessageEnv => ({
    init: () => ({ initPromptMessages: [{ role: 'user', content: 'Read the report page by page.' }] }),
    step: () => ({ envMessages: [{ role: 'user', content: 'This page says nothing of the harbour.' }] }),
    close: () => undefined,
  }),
  rewardFns: [{ name: 'turns', score: ({ turns }) => turns.length }],
  isSolved: () => true,
}

hand(await measure())

async function measure(): Promise<Report> {
  const lags: number[] = []
  const cancels: number[] = []
  const rounds = await alternate(
    {
      crowd: async () => {
        const { usPerTurn, lagMs } = await crowd()
        lags.push(lagMs)
        return { value: usPerTurn }
      },
      early: async () => ({ value: (await longRollout()).early }),
      late: async () => ({ value: (await longRollout()).late }),
      cancel: async () => {
        const ms = await cancelAll()
        cancels.push(ms)
        return { value: ms }
      },
    },
    { ...options, warmup: 1 },
  )
  const kept = (all: readonly number[]) => {
    const values = rounds.kept.map((index) => all[index] ?? Number.NaN).sort((a, b) => a - b)
    const at = (share: number) => values[Math.floor(share * (values.length - 1))]?.toFixed(1)
    return `${at(0.5)} (median of the rounds) and ${at(1)} (worst)`
  }
  const figure = (name: 'crowd' | 'early' | 'late' | 'cancel', work: string, unit: 'us' | 'ms') => {
    const { cold, warm } = rounds.of(name)
    return { work, unit, ours: warm, cold: { ours: cold } }
  }
  return {
    setting: { inFlight: IN_FLIGHT, groupSize: GROUP_SIZE, turns: TURNS, longTurns: LONG_TURNS },
    checks: [`${IN_FLIGHT} requests waited at once, and every rollout had ${TURNS} turns`],
    figures: [
      figure('crowd', `a turn, ${IN_FLIGHT} rollouts in flight`, 'us'),
      figure('early', `a turn of a rollout alone, the first ${LONG_TURNS / 4}`, 'us'),
      figure('late', `a turn of a rollout alone, the last ${LONG_TURNS / 4} of ${LONG_TURNS}`, 'us'),
      figure('cancel', `to stop ${IN_FLIGHT} rollouts`, 'ms'),
    ],
    notes: [
      `event-loop lag, 99 of 100 below ${kept(lags)} ms (goal 20)`,
      `all stopped within ${kept(cancels)} ms (goal 100)`,
      rounds.disturbance,
    ],
    versions: {},
  }
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
