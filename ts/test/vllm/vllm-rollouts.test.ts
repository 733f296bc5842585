// Rollouts of a Rollouter whose policy is AsyncVLLM, over servers that fail.

import { afterEach, describe, expect, it } from 'vitest'
import { createRenderer } from '../../src/chat/index.js'
import { listDataset } from '../../src/data/index.js'
import type { Task } from '../../src/env/index.js'
import { Rollouter } from '../../src/rollout/index.js'
import { sumDigits } from '../../src/task/index.js'
import { CharTokenizer } from '../../src/tokenizer/index.js'
import { AsyncVLLM } from '../../src/vllm/index.js'
import { scriptedEnv } from '../rollout/scripted-env.js'
import { FakeVllm, type FakeVllmOptions } from './fake-vllm.js'

const open: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

const tokenizer = new CharTokenizer()
const contextLength = 4096

async function rolloutsOver(options: FakeVllmOptions) {
  const { vocabSize } = tokenizer
  const fakes = await Promise.all(
    [1, 2].map((seed) => FakeVllm.start({ vocabSize, contextLength, seed, ...options })),
  )
  for (const fake of fakes) open.push(() => fake.close())
  const urls = fakes.map(({ url }) => url)
  const policy = await AsyncVLLM.connect(urls, { vocabSize, backoffMs: 1, maxAttempts: 20 })
  open.push(() => policy.close())
  const renderer = createRenderer(tokenizer, { name: 'chatml' })
  const rollouter = new Rollouter({
    policy,
    renderer,
    task: sumDigits({ prompt: 'short' }),
    groupSize: 8,
    maxTokens: 12,
  })
  const sample = { numbers: [24, 13], target: 10 }
  const groups = await Promise.all(
    Array.from({ length: 25 }, (_, groupId) => rollouter.runGroup({ sample, groupId })),
  )
  return { fakes, policy, rollouts: groups.flatMap((group) => group.rollouts) }
}

describe('rollouts over vLLM servers', () => {
  it('are the same with a fifth of the answers broken as with none: none lost, doubled or hung', async () => {
    // A hang is tried elsewhere: its deadline is real time here.
    const faultKinds = [
      'reset',
      '429',
      '503',
      'truncated',
      'cutOff',
      'wrongCount',
      'foreignId',
      'lyingLogProb',
    ] as const
    const broken = await rolloutsOver({ faultRate: 0.2, faultKinds })
    const whole = await rolloutsOver({})
    const told = ({ rollouts }: typeof whole) =>
      rollouts.map(({ groupId, rolloutId, status, turns }) => {
        const ids = turns.map(({ completionIds }) => [...completionIds])
        return { groupId, rolloutId, status, ids }
      })
    expect(broken.rollouts).toHaveLength(200)
    expect(new Set(told(broken).map(({ groupId, rolloutId }) => `${groupId}/${rolloutId}`)).size).toBe(200)
    expect(told(broken)).toEqual(told(whole))
    expect(broken.fakes.flatMap(({ dealt }) => dealt).length).toBeGreaterThan(20)
    expect(broken.policy.router.loads).toEqual([0, 0])
  })

  it('keep to the server that knows their beginning, turn after turn', async () => {
    const { vocabSize } = tokenizer
    const fakes = await Promise.all(
      [1, 2, 3].map((seed) => FakeVllm.start({ vocabSize, contextLength, seed })),
    )
    for (const fake of fakes) open.push(() => fake.close())
    const policy = await AsyncVLLM.connect(
      fakes.map(({ url }) => url),
      { vocabSize },
    )
    open.push(() => policy.close())
    const renderer = createRenderer(tokenizer, { name: 'chatml' })
    const task: Task<null> = {
      name: 'talk',
      makeDataset: () => listDataset({ items: [null] }),
      makeEnv: () => scriptedEnv(),
      rewardFns: [{ name: 'one', score: () => 1 }],
      isSolved: () => true,
    }
    const options = { policy, renderer, task, groupSize: 4, maxTokens: 4, maxTurns: 3 }
    const rollouter = new Rollouter({ ...options, onTruncation: 'continue' })
    const runs = Array.from({ length: 5 }, (_, groupId) => rollouter.runGroup({ sample: null, groupId }))
    const groups = await Promise.all(runs)
    expect(groups.flatMap(({ rollouts }) => rollouts.map(({ turns }) => turns.length))).toEqual(
      new Array(20).fill(3),
    )
    const serversOf = new Map<string, Set<number>>()
    for (const [server, { requests }] of fakes.entries()) {
      for (const { request_id } of requests) {
        const [rollout] = request_id.match(/^group=\d+\/rollout=\d+/) ?? []
        if (rollout === undefined) continue // the probe
        serversOf.set(rollout, (serversOf.get(rollout) ?? new Set()).add(server))
      }
    }
    expect(serversOf.size).toBe(20)
    expect([...serversOf.values()].every(({ size }) => size === 1)).toBe(true)
    expect(new Set([...serversOf.values()].flatMap((servers) => [...servers])).size).toBe(3)
  })
})
