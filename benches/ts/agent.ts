/**
 * The endpoint for agents over a policy that answers from a script, compared with the interception server of verifiers in front of a server
 * that answers at once: 256 agents of 8 turns at once, in another process. Wall time and processor time a request, and the lag of our
 * event loop.
 */

import { monitorEventLoopDelay } from 'node:perf_hooks'
import { fileURLToPath } from 'node:url'
import { CharTokenizer } from 'fulmar'
import { InterceptionServer } from 'fulmar/agent'
import { createRenderer } from 'fulmar/chat'
import { ScriptedPolicy } from 'fulmar/testing'
import { alternate, hand, median, ROOT, readOptions, type Sample, verdict } from './measure.js'
import { Peer, PYTHON_ENVIRONMENT, type Skipped } from './peer.js'
import { installPython } from './python-rival.js'

const AGENTS = 256
const TURNS = 8
const CPU_MS_GOAL = 1.5
const LAG_MS_GOAL = 20
/** Wall time of the rival's request over that of ours. */
const GOAL = { atLeast: 5 }
const ANSWER = 'I look at the next page of the report.'
const RIVAL = fileURLToPath(new URL('benches/rival/verifiers/interception.py', ROOT))

/** Report of the agents on one round. */
interface Served {
  readonly requests: number
  readonly wallMs: number
  readonly cpuMs: number
}

const options = readOptions({ rounds: 9 })
using tokenizer = new CharTokenizer()
using renderer = createRenderer(tokenizer, { name: 'chatml' })
const answer = [...tokenizer.encode(ANSWER).ids, renderer.stopIds[0] ?? 0]
const server = await InterceptionServer.listen()
using clients = program('the agents', 'agent-clients.js')
using stub = program('the stub', 'openai-stub.js', ANSWER)
const { url: stubUrl } = (await stub.answer()) as { url: string }
const started = startRival()
using rival = started instanceof Peer ? started : undefined
const skipped = started instanceof Peer ? undefined : started
const versions = rival ? ((await rival.answer()) as { versions: Record<string, string> }).versions : {}
const [cpuMs, lagMs, rivalCpuMs]: [number[], number[], number[]] = [[], [], []]
try {
  const theirs = rival && { theirs: () => askRival(rival) }
  const contestants: Readonly<Record<string, () => Promise<Sample>>> = { ours: askAll, ...theirs }
  const { of, kept, disturbance } = await alternate(contestants, { ...options, warmup: 2 })
  const { warm, cold } = of('ours')
  const other = rival && of('theirs')
  const keptOf = (samples: readonly number[]) =>
    median(kept.map((round) => samples[round] ?? Number.NaN)).toFixed(2)
  const [cpu, lag] = [Number(keptOf(cpuMs)), Number(keptOf(lagMs))]
  hand({
    setting: { agents: AGENTS, turns: TURNS, completionTokens: answer.length },
    checks: [
      `each rollout of ours has ${TURNS} turns in one branch of its ledger, with the tokens of the script`,
      ...(rival ? [`each rollout of verifiers has ${TURNS} turns`] : []),
    ],
    figures: [
      {
        ...{ work: 'a request, wall time', unit: 'ms', ours: warm, goal: GOAL },
        cold: { ours: cold, ...(other && { rival: other.cold }) },
        rival: skipped ?? { name: 'verifiers', samples: other?.warm ?? [] },
      },
    ],
    notes: [
      `${(1000 / median(warm)).toFixed(0)} requests/s, with the agents on the same machine`,
      ...(other
        ? [
            `verifiers: ${(1000 / median(other.warm)).toFixed(0)} requests/s, ${keptOf(rivalCpuMs)} ms of processor time a request`,
          ]
        : []),
      `processor time of the endpoint a request: ${cpu} ms, ${verdict(cpu, CPU_MS_GOAL, 'ms')}`,
      `event-loop lag p99: ${lag} ms, ${verdict(lag, LAG_MS_GOAL, 'ms')}`,
      disturbance,
    ],
    versions,
  })
} finally {
  await server.close()
}

function program(name: string, file: string, ...args: string[]): Peer {
  return new Peer(name, process.execPath, [fileURLToPath(new URL(file, import.meta.url)), ...args])
}

function startRival(): Peer | Skipped {
  if (!options.rival) return { skipped: '--no-rival' }
  const installed = installPython('verifiers', 'about 200 MB to download')
  return 'skipped' in installed
    ? installed
    : new Peer('verifiers', installed.python, [RIVAL, stubUrl], PYTHON_ENVIRONMENT)
}

/** Milliseconds of wall time a request. */
async function askAll(): Promise<Sample> {
  const policy = new ScriptedPolicy({ reply: () => answer })
  const rollouts = Array.from({ length: AGENTS }, () => server.open({ policy, renderer }))
  const lag = monitorEventLoopDelay({ resolution: 1 })
  const before = process.cpuUsage()
  lag.enable()
  const served = await converse(
    server.url,
    rollouts.map(({ apiKey }) => apiKey),
  )
  lag.disable()
  const { user, system } = process.cpuUsage(before)
  cpuMs.push((user + system) / 1000 / served.requests)
  lagMs.push(lag.percentile(99) / 1e6)
  for (const rollout of rollouts) {
    const { turns, ledger } = await rollout.end()
    const isOneBranch = turns.every(
      ({ fork, completionIds }) => !fork && completionIds.length === answer.length,
    )
    if (ledger.numTurns !== TURNS || !isOneBranch)
      throw new Error(`a rollout must have ${TURNS} turns in one branch: got ${ledger.numTurns}`)
    ledger[Symbol.dispose]()
  }
  return { value: served.wallMs / served.requests, rivalCpuMs: served.cpuMs }
}

async function askRival(peer: Peer): Promise<Sample> {
  const stubBefore = (await stub.ask('time')) as Served
  const { url, keys } = (await peer.ask(JSON.stringify({ agents: AGENTS }))) as {
    readonly url: string
    readonly keys: readonly string[]
  }
  const served = await converse(url, keys)
  const { cpuMs: taken, turns } = (await peer.ask('close')) as {
    readonly cpuMs: number
    readonly turns: readonly number[]
  }
  const stubAfter = (await stub.ask('time')) as Served
  if (turns.length !== AGENTS || turns.some((count) => count !== TURNS))
    throw new Error(`each rollout of verifiers must have ${TURNS} turns: got ${turns.join(' ')}`)
  rivalCpuMs.push(taken / served.requests)
  return {
    value: served.wallMs / served.requests,
    rivalCpuMs: served.cpuMs + taken + stubAfter.cpuMs - stubBefore.cpuMs,
  }
}

async function converse(url: string, keys: readonly string[]): Promise<Served> {
  return (await clients.ask(JSON.stringify({ url, keys, turns: TURNS }))) as Served
}
