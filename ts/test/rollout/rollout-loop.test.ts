import { describe, expect, it } from 'vitest'
import { listDataset } from '../../src/data/index.js'
import type { MessageEnv, Task } from '../../src/env/index.js'
import type { GenerateRequest, Policy } from '../../src/policy/index.js'
import { Rollouter, type RollouterOptions } from '../../src/rollout/index.js'
import { ManualClock } from '../../src/telemetry/index.js'
import { ScriptedPolicy } from '../../src/testing/index.js'
import { type ScriptedEnv, scriptedEnv } from './scripted-env.js'
import { ToyRenderer } from './toy-renderer.js'

/** Rollouts of at most three turns, with one member; `makeEnv` gets the number of earlier environments. */
function worldOf(
  options: Partial<RollouterOptions<string>> = {},
  makeEnv: (index: number) => MessageEnv = () => scriptedEnv(),
) {
  const envs: MessageEnv[] = []
  const task: Task<string> = {
    name: 'toy',
    makeDataset: () => listDataset({ items: ['a'] }),
    makeEnv: () => {
      const env = makeEnv(envs.length)
      envs.push(env)
      return env
    },
    rewardFns: [{ name: 'one', score: () => 1 }],
    isSolved: () => true,
  }
  const policy = options.policy ?? new ScriptedPolicy({ reply: () => [20, 21, 9] })
  const shared = { task, renderer: new ToyRenderer(), groupSize: 1, maxTokens: 8, maxTurns: 3 }
  return { envs, policy, rollouter: new Rollouter({ ...shared, ...options, policy }) }
}

const group0 = { sample: 'a', groupId: 0 }
const throwing = (): MessageEnv => ({
  ...scriptedEnv(),
  step: () => {
    throw new Error('sandbox died')
  },
})

describe('a rollout with a budget of tokens', () => {
  it('ends once its completions have used it up, and keeps what they said', async () => {
    const { rollouter, policy } = worldOf({ maxTotalTokens: 6 })
    using group = await rollouter.runGroup(group0)
    const [rollout] = group.rollouts
    expect(rollout).toMatchObject({ status: 'truncated_total_tokens', cause: null, reward: 1 })
    expect(rollout?.turns).toHaveLength(2)
    expect((policy as ScriptedPolicy).requests.map(({ maxTokens }) => maxTokens)).toEqual([6, 3])
  })

  it('tells a completion that the budget cut from one that its own limit cut', async () => {
    const reply = () => [20, 21, 22, 23]
    const cut = worldOf({ maxTotalTokens: 4, policy: new ScriptedPolicy({ reply }) })
    using budget = await cut.rollouter.runGroup(group0)
    expect(budget.rollouts[0]?.status).toBe('truncated_total_tokens')
    const long = worldOf({ maxTotalTokens: 9, maxTokens: 4, policy: new ScriptedPolicy({ reply }) })
    using limit = await long.rollouter.runGroup(group0)
    expect(limit.rollouts[0]?.status).toBe('truncated_length')
  })
})

describe('a rollout that fails', () => {
  it('begins again with a new environment, other draws and another id, and closes the old environment at once', async () => {
    const { rollouter, policy, envs } = worldOf({ retries: 2, maxTurns: 1 }, (index) =>
      index < 2 ? { ...throwing(), close: scriptedEnv().close } : scriptedEnv(),
    )
    using group = await rollouter.runGroup(group0)
    expect(group.rollouts[0]).toMatchObject({ status: 'truncated_max_turns', attempt: 2, cause: null })
    expect(envs).toHaveLength(3)
    const { requests } = policy as ScriptedPolicy
    expect(requests.map(({ requestId }) => requestId)).toEqual([
      'group=0/rollout=0/turn=0',
      'group=0/rollout=0/turn=0/attempt=1',
      'group=0/rollout=0/turn=0/attempt=2',
    ])
    expect(requests.map(({ sessionId }) => sessionId)).toEqual([
      'group=0/rollout=0',
      'group=0/rollout=0/attempt=1',
      'group=0/rollout=0/attempt=2',
    ])
    expect(new Set(requests.map(({ seed }) => seed)).size).toBe(3)
  })

  it('keeps its last attempt when there are no more, with every environment closed once', async () => {
    const worlds: ScriptedEnv[] = []
    const { rollouter } = worldOf({ retries: 1, maxTurns: 1 }, () => {
      const world = scriptedEnv(() => {
        throw new Error('sandbox died')
      })
      worlds.push(world)
      return world
    })
    using group = await rollouter.runGroup(group0)
    expect(group.rollouts[0]).toMatchObject({
      status: 'error',
      attempt: 1,
      cause: { message: 'sandbox died' },
    })
    expect(worlds.map(({ numClosed }) => numClosed)).toEqual([1, 1])
  })

  it('never begins again after an end that is no error', async () => {
    const { rollouter, envs } = worldOf({ retries: 3, maxTurns: 1 })
    using group = await rollouter.runGroup(group0)
    expect(group.rollouts[0]?.attempt).toBe(0)
    expect(envs).toHaveLength(1)
  })

  it.each([
    ['keep', [1, 1, 1]],
    ['drop', [null, 1, 1]],
    [{ minViable: 2 }, [null, 1, 1]],
    [{ minViable: 3 }, [null, null, null]],
  ] as const)('counts in its group as onError %j says', async (onError, rewards) => {
    const { rollouter } = worldOf({ groupSize: 3, maxTurns: 1, onError }, (index) =>
      index === 0 ? throwing() : scriptedEnv(),
    )
    using group = await rollouter.runGroup(group0)
    expect(group.rollouts.map(({ reward }) => reward)).toEqual(rewards)
    const dropped = group.rollouts.filter(({ reward }) => reward === null)
    expect(dropped.every(({ unscored }) => unscored.error?.code === 'DECLINED')).toBe(true)
  })

  it('refuses counts that cannot be', () => {
    expect(() => worldOf({ retries: -1 })).toThrow('retries + 1 must be a positive integer: got 0')
    expect(() => worldOf({ maxTotalTokens: 0 })).toThrow(expect.objectContaining({ code: 'OUT_OF_RANGE' }))
    expect(() => worldOf({ onError: { minViable: 0 } })).toThrow(
      expect.objectContaining({ code: 'OUT_OF_RANGE' }),
    )
  })
})

describe('a rollout with a deadline of its own', () => {
  /** Answers the first request and hangs on the second. */
  const hanging = (): Policy & { readonly seen: GenerateRequest[] } => {
    const inner = new ScriptedPolicy({ reply: () => [20, 9] })
    const seen: GenerateRequest[] = []
    return {
      version: 0,
      seen,
      generate: (request) => (seen.push(request) === 1 ? inner.generate(request) : new Promise(() => {})),
    }
  }

  it('ends with error_timeout, keeps its turns, and tells the policy to stop', async () => {
    const clock = new ManualClock()
    const policy = hanging()
    const { rollouter } = worldOf({ policy, clock, rolloutTimeoutMs: 500, stepTimeoutMs: null })
    const running = rollouter.runGroup(group0)
    while (policy.seen.length < 2) await new Promise((resolve) => setImmediate(resolve))
    clock.advance(500)
    using group = await running
    expect(group.rollouts[0]).toMatchObject({
      status: 'error_timeout',
      cause: { stage: 'rollout', kind: 'deadline' },
    })
    expect(group.rollouts[0]?.turns).toHaveLength(1)
    expect(group.rollouts[0]?.ledger.numTurns).toBe(1)
    expect(policy.seen[1]?.signal?.aborted).toBe(true)
    expect(clock.numTimers).toBe(0)
  })

  it('is still an abort when the caller stops it', async () => {
    const controller = new AbortController()
    const policy = hanging()
    const { rollouter } = worldOf({ policy, clock: new ManualClock(), rolloutTimeoutMs: 500 })
    const running = rollouter.runGroup({ ...group0, signal: controller.signal })
    while (policy.seen.length < 2) await new Promise((resolve) => setImmediate(resolve))
    controller.abort()
    await expect(running).rejects.toMatchObject({ code: 'ABORTED' })
  })
})

describe('the prompts of a rollout', () => {
  it('share memory as long as they extend each other', async () => {
    const { rollouter } = worldOf({ maxTurns: 100 })
    using group = await rollouter.runGroup(group0)
    const turns = group.rollouts[0]?.turns ?? []
    expect(turns).toHaveLength(100)
    const lengths = turns.map(({ promptIds }) => promptIds.length)
    expect(lengths.slice(0, 3)).toEqual([6, 15, 24])
    const buffers = new Set(turns.map(({ promptIds }) => promptIds.buffer))
    const numBytes = [...buffers].reduce((sum, { byteLength }) => sum + byteLength, 0)
    expect(numBytes).toBeLessThan(4 * 4 * (lengths.at(-1) ?? 0))
  })
})
