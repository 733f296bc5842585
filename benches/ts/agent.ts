/**
 * The endpoint for agents over a policy that answers from a script: 256 agents of 8 turns at once, in another process.
 * Wall time and processor time of the endpoint's process a request, and the lag of its event loop.
 */

import { monitorEventLoopDelay } from 'node:perf_hooks'
import { fileURLToPath } from 'node:url'
import { CharTokenizer } from 'fulmar'
import { InterceptionServer } from 'fulmar/agent'
import { createRenderer } from 'fulmar/chat'
import { ScriptedPolicy } from 'fulmar/testing'
import { alternate, hand, median, readOptions, type Sample, verdict } from './measure.js'
import { Peer } from './peer.js'

const AGENTS = 256
const TURNS = 8
const CPU_MS_GOAL = 1.5
const LAG_MS_GOAL = 20
const ANSWER = 'I look at the next page of the report.'

const options = readOptions({ rounds: 9 })
using tokenizer = new CharTokenizer()
using renderer = createRenderer(tokenizer, { name: 'chatml' })
const answer = [...tokenizer.encode(ANSWER).ids, renderer.stopIds[0] ?? 0]
const server = await InterceptionServer.listen()
using clients = new Peer('the agents', process.execPath, [
  fileURLToPath(new URL('agent-clients.js', import.meta.url)),
])
const [cpuMs, lagMs]: [number[], number[]] = [[], []]
try {
  const { of, kept, disturbance } = await alternate({ ours: askAll }, { ...options, warmup: 2 })
  const { warm, cold } = of('ours')
  const keptOf = (samples: readonly number[]) => kept.map((round) => samples[round] ?? Number.NaN)
  const [cpu, lag] = [median(keptOf(cpuMs)), median(keptOf(lagMs))]
  hand({
    setting: { agents: AGENTS, turns: TURNS, completionTokens: answer.length },
    checks: [`each rollout has ${TURNS} turns in one branch of its ledger, with the tokens of the script`],
    figures: [
      {
        ...{ work: 'a request, wall time', unit: 'ms', ours: warm, cold: { ours: cold } },
        rival: { skipped: 'the interception server of verifiers is not installed by this bench' },
      },
    ],
    notes: [
      `${(1000 / median(warm)).toFixed(0)} requests/s, with the agents on the same machine`,
      `processor time of the endpoint a request: ${cpu.toFixed(2)} ms, ${verdict(cpu, CPU_MS_GOAL, 'ms')}`,
      `event-loop lag p99: ${lag.toFixed(1)} ms, ${verdict(lag, LAG_MS_GOAL, 'ms')}`,
      disturbance,
    ],
    versions: {},
  })
} finally {
  await server.close()
}

/** Milliseconds of wall time a request. */
async function askAll(): Promise<Sample> {
  const policy = new ScriptedPolicy({ reply: () => answer })
  const rollouts = Array.from({ length: AGENTS }, () => server.open({ policy, renderer }))
  const lag = monitorEventLoopDelay({ resolution: 1 })
  const before = process.cpuUsage()
  lag.enable()
  const order = { url: server.url, keys: rollouts.map(({ apiKey }) => apiKey), turns: TURNS }
  const told = (await clients.ask(JSON.stringify(order))) as Record<'requests' | 'wallMs' | 'cpuMs', number>
  lag.disable()
  const { user, system } = process.cpuUsage(before)
  cpuMs.push((user + system) / 1000 / told.requests)
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
  return { value: told.wallMs / told.requests, rivalCpuMs: told.cpuMs }
}
