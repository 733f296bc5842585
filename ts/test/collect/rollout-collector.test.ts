import { describe, expect, it } from 'vitest'
import { RolloutCollector, type RolloutCollectorOptions } from '../../src/collect/index.js'
import { PREFETCH_MAX } from '../../src/collect/rollout-collector.js'
import { listDataset } from '../../src/data/index.js'
import type { RewardFn, Task } from '../../src/env/index.js'
import { LazyStackStorage, ReplayBuffer } from '../../src/replay/index.js'
import { Rollouter } from '../../src/rollout/index.js'
import { ScriptedPolicy, type ScriptedPolicyOptions } from '../../src/testing/index.js'
import { scriptedEnv } from '../rollout/scripted-env.js'
import { ToyRenderer } from '../rollout/toy-renderer.js'

const one: RewardFn<string> = { name: 'one', score: () => 1 }

interface World {
  readonly rewardFns?: readonly RewardFn<string>[]
  readonly init?: Task<string>['makeEnv']
  readonly turns?: number
  readonly reply?: ScriptedPolicyOptions['reply']
}

/** Rollouts of `turns` turns of two tokens each, in groups of two. */
function rollouterOf({
  rewardFns = [one],
  init,
  turns = 1,
  reply = () => [20, 9],
}: World = {}): Rollouter<string> {
  const task: Task<string> = {
    name: 'toy',
    makeDataset: () => listDataset({ items: ['a', 'b', 'c', 'd', 'e'] }),
    makeEnv: init ?? (() => scriptedEnv()),
    rewardFns,
    isSolved: () => true,
  }
  const policy = new ScriptedPolicy({ reply })
  return new Rollouter({
    policy,
    task,
    renderer: new ToyRenderer(),
    groupSize: 2,
    maxTokens: 8,
    maxTurns: turns,
  })
}

async function sizesOf(options: RolloutCollectorOptions<string>): Promise<number[][]> {
  const sizes: number[][] = []
  for await (const batch of new RolloutCollector(options)) {
    using owned = batch
    sizes.push(owned.groups.map(({ groupId }) => groupId))
  }
  return sizes
}

describe('RolloutCollector', () => {
  const trajectories = (size: number) => ({ unit: 'trajectories' as const, size })

  it('fills each batch with whole groups and ends at the budget', async () => {
    const options = { rollouter: rollouterOf(), batch: trajectories(3), budget: { trajectories: 5 } }
    expect(await sizesOf(options)).toEqual([
      [0, 1],
      [2, 3],
    ])
  })

  it.each([
    ['trajectories', 4, [[0, 1]]],
    ['turns', 7, [[0, 1]]],
    ['turns', 6, [[0], [1]]],
    ['tokens', 13, [[0, 1]]],
  ] as const)('counts %s, %i of them a batch', async (unit, size, expected) => {
    const rollouter = rollouterOf({ turns: 3 })
    const sizes = await sizesOf({ rollouter, batch: { unit, size }, budget: { trajectories: 4 } })
    expect(sizes).toEqual(expected)
  })

  it.each([
    [{ turns: 7 }, 2],
    [{ turns: 6 }, 1],
    [{ tokens: 13 }, 2],
    [{ tokens: 1000, trajectories: 6 }, 3],
  ])('ends with the group that reaches the budget %j', async (budget, numBatches) => {
    expect(await sizesOf({ rollouter: rollouterOf({ turns: 3 }), budget })).toHaveLength(numBatches)
  })

  it('takes one group a batch by default and knows its totals', async () => {
    const collector = new RolloutCollector({ rollouter: rollouterOf() })
    using batch = await collector.collect()
    expect(batch).toMatchObject({ index: 0, numTrajectories: 2, numTurns: 2, numTokens: 4 })
    using next = await collector.collect()
    expect(next.index).toBe(1)
    expect([collector.numTrajectories, collector.numTurns, collector.numTokens]).toEqual([4, 4, 8])
    expect(collector.numAhead).toBe(0)
  })

  it('goes on with the next group after a resume', async () => {
    const first = new RolloutCollector({ rollouter: rollouterOf(), batch: trajectories(4) })
    using _ = await first.collect()
    const resumed = new RolloutCollector({ rollouter: rollouterOf(), batch: trajectories(4) })
    resumed.loadStateDict(JSON.parse(JSON.stringify(first.stateDict())))
    using batch = await resumed.collect()
    expect(batch.groups.map(({ groupId, sample }) => `${groupId} ${sample}`)).toEqual(['2 c', '3 d'])
    expect(batch.index).toBe(1)
    expect(() => resumed.loadStateDict({})).toThrow(/numBatches must be >= 0/)
  })

  it('runs as many groups ahead as it is told, and none beyond the budget', async () => {
    const rollouter = rollouterOf()
    const collector = new RolloutCollector({ rollouter, prefetch: 3, budget: { trajectories: 10 } })
    const ahead: number[] = []
    const ids: number[] = []
    for await (const batch of collector) {
      using owned = batch
      ids.push(...owned.groups.map(({ groupId }) => groupId))
      ahead.push(collector.numAhead)
    }
    expect(ids).toEqual([0, 1, 2, 3, 4])
    expect(ahead).toEqual([3, 3, 2, 1, 0])
    expect(rollouter.stateDict().numGroups).toBe(5)
  })

  it('runs what was ahead again after a resume, so that nothing is lost', async () => {
    const first = new RolloutCollector({ rollouter: rollouterOf(), prefetch: 2 })
    using _ = await first.collect()
    const state = JSON.parse(JSON.stringify(first.stateDict()))
    expect(state.pending).toEqual([
      { groupId: 1, cursor: { position: 1 } },
      { groupId: 2, cursor: { position: 2 } },
    ])
    await first.stop()
    await first.stop()
    expect(first.stateDict()).toEqual(state)
    const resumed = new RolloutCollector({ rollouter: rollouterOf() })
    resumed.loadStateDict(state)
    const seen: string[] = []
    for (let count = 0; count < 4; count++) {
      using batch = await resumed.collect()
      seen.push(...batch.groups.map(({ groupId, sample }) => `${groupId} ${sample}`))
    }
    expect(seen).toEqual(['1 b', '2 c', '3 d', '4 e'])
  })

  it('gives groups as they were begun, or as they finish', async () => {
    const order = async (how: 'start' | 'finish') => {
      const gates = new Map<string, () => void>()
      const reply = async ({ requestId }: { readonly requestId: string }) => {
        if (requestId.startsWith('group=0'))
          await new Promise<void>((resolve) => gates.set(requestId, resolve))
        return [20, 9]
      }
      const rollouter = rollouterOf({ reply })
      const collector = new RolloutCollector({
        rollouter,
        prefetch: 3,
        order: how,
        budget: { trajectories: 6 },
      })
      const ids: number[] = []
      for await (const batch of opened(collector, gates)) {
        using owned = batch
        ids.push(...owned.groups.map(({ groupId }) => groupId))
      }
      return ids
    }
    expect(await order('start')).toEqual([0, 1, 2])
    expect(await order('finish')).toEqual([1, 2, 0])
  })

  it('writes rows of ragged tokens into its sink', async () => {
    using buffer = new ReplayBuffer({ storage: new LazyStackStorage(100), seed: 1 })
    const rollouter = rollouterOf({ turns: 2 })
    const sink = { buffer, rows: 'turns' as const }
    await new RolloutCollector({ rollouter, budget: { trajectories: 4 }, sink, prefetch: 2 }).fill()
    expect(buffer.length).toBe(8)
    using rows = buffer.storage.get([0, 1])
    expect([...rows.ragged('prompt_ids').offsets]).toEqual([0, 6, 20])
    expect([...(rows.tensor('completion_ids').data as Uint32Array)]).toEqual([20, 9, 20, 9])
    expect([...(rows.tensor('done').data as Uint32Array)]).toEqual([0, 1])
  })

  it('names the reward function when no rollout of a batch could be scored', async () => {
    const nan: RewardFn<string> = { name: 'speed', score: () => Number.NaN }
    const collector = new RolloutCollector({ rollouter: rollouterOf({ rewardFns: [one, nan] }) })
    await expect(collector.collect()).rejects.toMatchObject({
      code: 'NON_FINITE',
      message: expect.stringContaining('reward of speed must be a finite number: got NaN'),
    })
    const shy: RewardFn<string> = { name: 'judge', score: () => ({ unscored: 'no opinion' }) }
    const declined = new RolloutCollector({ rollouter: rollouterOf({ rewardFns: [shy] }) })
    await expect(declined.collect()).rejects.toMatchObject({ code: 'EMPTY' })
  })

  it('ends with the first cause when no rollout samples anything', async () => {
    const init = () => {
      throw new Error('no sandbox left')
    }
    const collector = new RolloutCollector({ rollouter: rollouterOf({ init }) })
    await expect(collector.collect()).rejects.toMatchObject({
      code: 'USER_CODE',
      message: 'a rollout must sample something: all 2 are empty (init: no sandbox left)',
    })
  })

  it('stops with ABORTED, before and while it collects', async () => {
    const early = new RolloutCollector({ rollouter: rollouterOf(), signal: AbortSignal.abort() })
    await expect(early.collect()).rejects.toMatchObject({ code: 'ABORTED' })
    const controller = new AbortController()
    const rollouter = rollouterOf({ reply: () => new Promise(() => {}) })
    const late = new RolloutCollector({ rollouter, signal: controller.signal, prefetch: 4 })
    const collecting = late.collect()
    controller.abort()
    await expect(collecting).rejects.toMatchObject({ code: 'ABORTED' })
    await late.stop()
    expect(late.stateDict().pending).toHaveLength(4)
  })

  it('refuses numbers that cannot be', () => {
    const make = (options: Partial<RolloutCollectorOptions<string>>) => () =>
      new RolloutCollector({ rollouter: rollouterOf(), ...options })
    expect(make({ batch: trajectories(0) })).toThrow('batch.size must be an integer >= 1: got 0')
    expect(make({ budget: { tokens: -2 } })).toThrow(expect.objectContaining({ code: 'OUT_OF_RANGE' }))
    expect(make({ prefetch: PREFETCH_MAX })).not.toThrow()
    expect(make({ prefetch: PREFETCH_MAX + 1 })).toThrow(expect.objectContaining({ code: 'LIMIT_EXCEEDED' }))
    expect(make({ order: 'finish' })).toThrow(expect.objectContaining({ code: 'INCOMPATIBLE' }))
  })
})

/** Iterates, and opens the gates once everything else has come. */
async function* opened<T>(batches: AsyncIterable<T>, gates: Map<string, () => void>): AsyncGenerator<T> {
  const iterator = batches[Symbol.asyncIterator]()
  for (;;) {
    const next = iterator.next()
    for (let round = 0; round < 50; round++) await new Promise((resolve) => setImmediate(resolve))
    const pending = Symbol('pending')
    if ((await Promise.race([next, Promise.resolve(pending)])) === pending)
      for (const open of gates.values()) open()
    const { value, done } = await next
    if (done) return
    yield value
  }
}
