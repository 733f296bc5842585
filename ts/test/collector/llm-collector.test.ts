import { describe, expect, it } from 'vitest'
import { LLMCollector, type LLMCollectorOptions } from '../../src/collector/index.js'
import { listDataset } from '../../src/data/index.js'
import type { RewardFn, Task } from '../../src/env/index.js'
import { ScriptedPolicy } from '../../src/policy/index.js'
import { Rollouter } from '../../src/rollout/index.js'
import { scriptedEnv } from '../rollout/scripted-env.js'
import { ToyRenderer } from '../rollout/toy-renderer.js'

const one: RewardFn<string> = { name: 'one', score: () => 1 }

interface World {
  readonly rewardFns?: readonly RewardFn<string>[]
  readonly init?: Task<string>['makeEnv']
  readonly turns?: number
}

/** Rollouts of `turns` turns of two tokens each, in groups of two. */
function rollouterOf({ rewardFns = [one], init, turns = 1 }: World = {}): Rollouter<string> {
  const task: Task<string> = {
    name: 'toy',
    makeDataset: () => listDataset({ items: ['a', 'b', 'c', 'd', 'e'] }),
    makeEnv: init ?? (() => scriptedEnv()),
    rewardFns,
    isSolved: () => true,
  }
  const policy = new ScriptedPolicy({ reply: () => [20, 9] })
  return new Rollouter({
    policy,
    task,
    renderer: new ToyRenderer(),
    groupSize: 2,
    maxTokens: 8,
    maxTurns: turns,
  })
}

async function sizesOf(options: LLMCollectorOptions<string>): Promise<number[][]> {
  const sizes: number[][] = []
  for await (const batch of new LLMCollector(options)) {
    using owned = batch
    sizes.push(owned.groups.map(({ groupId }) => groupId))
  }
  return sizes
}

describe('LLMCollector', () => {
  it('fills each batch with whole groups and ends at the total', async () => {
    const sizes = await sizesOf({ rollouter: rollouterOf(), dialogsPerBatch: 3, totalDialogs: 5 })
    expect(sizes).toEqual([
      [0, 1],
      [2, 3],
    ])
  })

  it('counts dialogs, not turns', async () => {
    const rollouter = rollouterOf({ turns: 3 })
    expect(await sizesOf({ rollouter, dialogsPerBatch: 4, totalDialogs: 4 })).toEqual([[0, 1]])
  })

  it('takes one group a batch by default and knows its totals', async () => {
    const collector = new LLMCollector({ rollouter: rollouterOf() })
    using batch = await collector.collect()
    expect(batch).toMatchObject({ index: 0, numDialogs: 2, numTurns: 2, numTokens: 4 })
    using next = await collector.collect()
    expect(next.index).toBe(1)
    expect([collector.numDialogs, collector.numTurns, collector.numTokens]).toEqual([4, 4, 8])
  })

  it('goes on with the next group after a resume', async () => {
    const first = new LLMCollector({ rollouter: rollouterOf(), dialogsPerBatch: 4 })
    using _ = await first.collect()
    const resumed = new LLMCollector({ rollouter: rollouterOf(), dialogsPerBatch: 4 })
    resumed.loadStateDict(JSON.parse(JSON.stringify(first.stateDict())))
    using batch = await resumed.collect()
    expect(batch.groups.map(({ groupId, sample }) => `${groupId} ${sample}`)).toEqual(['2 c', '3 d'])
    expect(batch.index).toBe(1)
    expect(() => resumed.loadStateDict({})).toThrow(/numBatches must be >= 0/)
  })

  it('names the reward function when no rollout of a batch could be scored', async () => {
    const nan: RewardFn<string> = { name: 'speed', score: () => Number.NaN }
    const collector = new LLMCollector({ rollouter: rollouterOf({ rewardFns: [one, nan] }) })
    await expect(collector.collect()).rejects.toMatchObject({
      code: 'NON_FINITE',
      message: expect.stringContaining('reward of speed must be a finite number: got NaN'),
    })
    const shy: RewardFn<string> = { name: 'judge', score: () => ({ unscored: 'no opinion' }) }
    const declined = new LLMCollector({ rollouter: rollouterOf({ rewardFns: [shy] }) })
    await expect(declined.collect()).rejects.toMatchObject({ code: 'EMPTY' })
  })

  it('ends with the first cause when no rollout samples anything', async () => {
    const init = () => {
      throw new Error('no sandbox left')
    }
    const collector = new LLMCollector({ rollouter: rollouterOf({ init }) })
    await expect(collector.collect()).rejects.toMatchObject({
      code: 'USER_CODE',
      message: 'a rollout must sample something: got none from 2 (init: no sandbox left)',
    })
  })

  it('stops with ABORTED', async () => {
    const collector = new LLMCollector({ rollouter: rollouterOf(), signal: AbortSignal.abort() })
    await expect(collector.collect()).rejects.toMatchObject({ code: 'ABORTED' })
  })

  it('refuses numbers of dialogs that are not positive integers', () => {
    const make = (options: Partial<LLMCollectorOptions<string>>) => () =>
      new LLMCollector({ rollouter: rollouterOf(), ...options })
    expect(make({ dialogsPerBatch: 0 })).toThrow('dialogsPerBatch must be a positive integer: got 0')
    expect(make({ totalDialogs: -2 })).toThrow(expect.objectContaining({ code: 'OUT_OF_RANGE' }))
  })
})
