/** Thousands of rollouts in one process: `Rollouter` with a policy that answers from a script. Counts and order, no times. */

import { describe, expect, it } from 'vitest'
import { listDataset } from '../../src/data/index.js'
import type { Task } from '../../src/env/index.js'
import { Rollouter } from '../../src/rollout/index.js'
import { ScriptedPolicy } from '../../src/testing/index.js'
import { type ScriptedEnv, scriptedEnv } from './scripted-env.js'
import { ToyRenderer } from './toy-renderer.js'

const IN_FLIGHT = 4096
const GROUP_SIZE = 8
const NUM_TURNS = 3
const tick = () => new Promise((resolve) => setImmediate(resolve))

function crowdOf(reply: () => Promise<readonly number[]>, concurrency = IN_FLIGHT) {
  const envs: ScriptedEnv[] = []
  const task: Task<string> = {
    name: 'toy',
    makeDataset: () => listDataset({ items: ['a'] }),
    makeEnv: () => {
      const env = scriptedEnv()
      envs.push(env)
      return env
    },
    rewardFns: [{ name: 'one', score: () => 1 }],
    isSolved: () => true,
  }
  const policy = new ScriptedPolicy({ reply })
  const shared = { policy, task, renderer: new ToyRenderer(), groupSize: GROUP_SIZE, maxTokens: 8 }
  const rollouter = new Rollouter({ ...shared, maxTurns: NUM_TURNS, concurrency })
  const run = (signal?: AbortSignal) =>
    Array.from({ length: IN_FLIGHT / GROUP_SIZE }, (_, groupId) =>
      rollouter.runGroup({ sample: 'a', groupId, ...(signal && { signal }) }),
    )
  return { envs, policy, run }
}

describe('4,096 rollouts', () => {
  it('are all in flight at once, and end in their order with every turn, token and environment accounted for', async () => {
    let open = () => {}
    const gate = new Promise<void>((resolve) => {
      open = resolve
    })
    let [numWaiting, numMost] = [0, 0]
    const { envs, policy, run } = crowdOf(async () => {
      numWaiting += 1
      numMost = Math.max(numMost, numWaiting)
      await gate
      numWaiting -= 1
      return [20, 9]
    })
    const running = run()
    while (numWaiting < IN_FLIGHT) await tick()
    open()
    const groups = await Promise.all(running)
    expect(numMost).toBe(IN_FLIGHT)
    expect(policy.requests).toHaveLength(IN_FLIGHT * NUM_TURNS)
    expect(new Set(policy.requests.map(({ requestId }) => requestId)).size).toBe(IN_FLIGHT * NUM_TURNS)
    expect(groups.map(({ groupId }) => groupId)).toEqual(Array.from({ length: groups.length }, (_, id) => id))
    const rollouts = groups.flatMap((group) => group.rollouts)
    expect(rollouts).toHaveLength(IN_FLIGHT)
    expect(rollouts.every(({ turns, reward }) => turns.length === NUM_TURNS && reward === 1)).toBe(true)
    expect(envs).toHaveLength(IN_FLIGHT)
    expect(envs.every(({ numClosed }) => numClosed === 1)).toBe(true)
    for (const group of groups) group[Symbol.dispose]()
  })

  it('never run more at once than they may', async () => {
    let [numWaiting, numMost] = [0, 0]
    const { run } = crowdOf(async () => {
      numWaiting += 1
      numMost = Math.max(numMost, numWaiting)
      await tick()
      numWaiting -= 1
      return [20, 9]
    }, 100)
    for (const group of await Promise.all(run())) group[Symbol.dispose]()
    expect(numMost).toBeLessThanOrEqual(100)
    expect(numMost).toBeGreaterThan(1)
  })

  it('are all stopped by one signal, with every environment closed and nothing asked afterwards', async () => {
    const abort = new AbortController()
    const { envs, policy, run } = crowdOf(() => new Promise(() => {}))
    const ended = Promise.allSettled(run(abort.signal))
    while (policy.requests.length < IN_FLIGHT) await tick()
    abort.abort()
    const results = await ended
    expect(results.every(({ status }) => status === 'rejected')).toBe(true)
    const codes = results.map((result) => (result.status === 'rejected' ? result.reason.code : 'none'))
    expect(new Set(codes)).toEqual(new Set(['ABORTED']))
    expect(policy.requests.every(({ signal }) => signal?.aborted)).toBe(true)
    expect(envs.every(({ numClosed }) => numClosed === 1)).toBe(true)
    await tick()
    expect(policy.requests).toHaveLength(IN_FLIGHT)
  })
})
