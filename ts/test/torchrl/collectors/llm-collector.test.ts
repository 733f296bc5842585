import { describe, expect, it } from 'vitest'
import { LazyStackStorage, ReplayBuffer } from '../../../src/replay/index.js'
import { type LazyStack, Tensor, type TensorDict } from '../../../src/tensor/index.js'
import {
  ChatEnv,
  chatsAt,
  DatasetChatEnv,
  LLMCollector,
  type LLMCollectorBatch,
  type LLMCollectorOptions,
  PolicyVersion,
  replyPolicy,
  StepCounter,
} from '../../../src/torchrl/index.js'
import { failing } from '../envs/chats.js'

const policy = replyPolicy({ inputMode: 'history', reply: (prompt) => `${prompt.length}` })
/** Chats whose episodes have so many steps. */
const chats = (maxSteps: number | readonly number[], numEnvs = 4) => {
  const dataset = Array.from({ length: 40 }, (_, at) => ({ query: `q${at}` }))
  if (typeof maxSteps === 'number')
    return new DatasetChatEnv({
      dataset,
      shuffle: false,
      numEnvs,
      transforms: [new StepCounter({ maxSteps })],
    })
  const ends = {
    afterStep: (next: TensorDict) => {
      const counts = Array.from(next.tensor('step_count').data, Number)
      const over = chatsAt(next, ['history', 'prompt']).map((chat, at) => {
        const first = Number(String(chat[0]?.content).slice(1))
        return Number((counts[at] ?? 0) >= (maxSteps[first % maxSteps.length] ?? 1))
      })
      return next.set('done', Tensor.from(Uint8Array.from(over), { shape: [over.length, 1], dtype: 'bool' }))
    },
  }
  return new DatasetChatEnv({
    dataset,
    shuffle: false,
    numEnvs,
    transforms: [new StepCounter(), ends],
  })
}
const collectorOf = (options: Partial<LLMCollectorOptions>) =>
  new LLMCollector({ env: chats(3), policy, ...options })
async function batchesOf(collector: LLMCollector): Promise<LLMCollectorBatch[]> {
  const batches: LLMCollectorBatch[] = []
  for await (const batch of collector) batches.push(batch)
  return batches
}
const shapesOf = (batches: readonly LLMCollectorBatch[]) => batches.map((batch) => batch?.batchSize)
const numbers = (batch: LLMCollectorBatch | undefined, ...key: string[]) =>
  Array.from((batch as TensorDict).tensor(key).data, Number)

describe('turns', () => {
  // Rows of the original: 4 conversations.
  it.each([
    [
      4,
      10,
      [
        [4, 1],
        [4, 1],
        [4, 1],
      ],
      12,
    ],
    [
      6,
      16,
      [
        [4, 2],
        [4, 2],
      ],
      16,
    ],
    [undefined, 1, [[4, 1]], 4],
    [20, 20, [[4, 5]], 20],
  ])('takes batches of %s turns until %s', async (size, total, shapes, count) => {
    const collector = collectorOf({ totalDialogTurns: total, ...(size && { dialogTurnsPerBatch: size }) })
    expect(shapesOf(await batchesOf(collector))).toEqual(shapes)
    expect([collector.numTurns, collector.numYielded]).toEqual([count, count])
  })

  it('goes on where the last batch ended, and numbers trajectories', async () => {
    const collector = collectorOf({ dialogTurnsPerBatch: 8, totalDialogTurns: 16, flattenData: true })
    const [first, second] = await batchesOf(collector)
    expect(numbers(first, 'next', 'step_count')).toEqual([1, 2, 1, 2, 1, 2, 1, 2])
    expect(numbers(second, 'next', 'step_count')).toEqual([3, 1, 3, 1, 3, 1, 3, 1])
    expect(numbers(first, 'collector', 'traj_ids')).toEqual([0, 0, 1, 1, 2, 2, 3, 3])
    expect(numbers(second, 'collector', 'traj_ids')).toEqual([0, 4, 1, 5, 2, 6, 3, 7])
    expect(collector.numTrajectories).toBe(4)
    const lengths = (key: string[]) => chatsAt(second as TensorDict, key).map((chat) => chat.length)
    const [before, after] = [lengths(['history', 'prompt']), lengths(['next', 'history', 'prompt'])]
    expect(after).toEqual(before.map((length) => length + 1))
  })

  it('begins every batch anew where asked to', async () => {
    const collector = collectorOf({
      totalDialogTurns: 16,
      resetAtEachIter: true,
      flattenData: true,
      dialogTurnsPerBatch: 8,
    })
    const [, second] = await batchesOf(collector)
    expect(numbers(second, 'next', 'step_count')).toEqual([1, 2, 1, 2, 1, 2, 1, 2])
    expect((second as TensorDict).value('query')).toEqual(['q4', 'q4', 'q5', 'q5', 'q6', 'q6', 'q7', 'q7'])
  })

  it('is the same flat as stacked', async () => {
    const make = (flattenData: boolean) => collectorOf({ dialogTurnsPerBatch: 12, flattenData })
    const [stacked, flat] = [await make(false).rollout(), await make(true).rollout()]
    const dense = (stacked as LazyStack).dense()
    expect(dense.tensor(['next', 'step_count']).shape).toEqual([4, 3, 1])
    expect(numbers(flat, 'next', 'step_count')).toEqual(numbers(dense, 'next', 'step_count'))
  })
})

describe('whole trajectories', () => {
  it('gives them one behind the other until there are enough turns', async () => {
    const collector = collectorOf({
      yieldCompletedTrajectories: true,
      dialogTurnsPerBatch: 4,
      totalDialogTurns: 20,
    })
    const batches = await batchesOf(collector)
    expect(shapesOf(batches)).toEqual([[6], [6], [6], [6]])
    expect(numbers(batches[0], 'next', 'step_count')).toEqual([1, 2, 3, 1, 2, 3])
    expect(numbers(batches[0], 'next', 'done')).toEqual([0, 0, 1, 0, 0, 1])
    expect(batches.map((batch) => numbers(batch, 'collector', 'traj_ids'))).toEqual([
      [0, 0, 0, 1, 1, 1],
      [2, 2, 2, 3, 3, 3],
      [4, 4, 4, 5, 5, 5],
      [6, 6, 6, 7, 7, 7],
    ])
  })

  it('gives each that ends in the same step, in the order of ending', async () => {
    const env = chats([2, 1, 2, 3])
    const collector = collectorOf({ env, yieldCompletedTrajectories: true })
    const ids: number[][] = []
    for (let at = 0; at < 4; at++) ids.push(numbers(await collector.rollout(), 'collector', 'traj_ids'))
    // In turns: 2, 1, 2, 3 at first; then 2 behind the second, and 1 behind the first.
    expect(ids).toEqual([[1], [0, 0], [2, 2], [5]])
  })

  it('gives last turns alone, and counts the turns that they took', async () => {
    const collector = collectorOf({ yieldOnlyLastSteps: true, dialogTurnsPerBatch: 4, totalDialogTurns: 20 })
    const batches = await batchesOf(collector)
    expect(shapesOf(batches)).toEqual([[4], [4]])
    expect(numbers(batches[1], 'next', 'step_count')).toEqual([3, 3, 3, 3])
    expect([collector.numTurns, collector.numTrajectories, collector.numYielded]).toEqual([24, 8, 8])
  })
})

describe('a replay buffer', () => {
  it('takes the rows, and null comes out', async () => {
    using buffer = new ReplayBuffer({ storage: new LazyStackStorage(100) })
    const collector = collectorOf({ replayBuffer: buffer, totalDialogTurns: 20, dialogTurnsPerBatch: 8 })
    expect(await batchesOf(collector)).toEqual([null, null, null])
    expect(buffer.length).toBe(24)
    expect(buffer.sample(4).batchSize).toEqual([4])
  })

  it('is filled beside the caller, until the end or a stop', async () => {
    using buffer = new ReplayBuffer({ storage: new LazyStackStorage(1000) })
    const collector = collectorOf({ replayBuffer: buffer, totalDialogTurns: 12 })
    collector.start()
    expect(collector.isRunning).toBe(true)
    expect(() => collector.start()).toThrow(failing('INCOMPATIBLE', /running/))
    while (collector.isRunning) await new Promise<void>((resolve) => setImmediate(resolve))
    expect(buffer.length).toBe(12)
    await collector.shutdown()
    const endless = collectorOf({ replayBuffer: buffer })
    endless.start()
    while (endless.numTurns < 8) await new Promise<void>((resolve) => setImmediate(resolve))
    await endless.shutdown()
    expect([endless.isRunning, buffer.length]).toEqual([false, 12 + endless.numTurns])
    await endless.shutdown()
  })

  it('reports a failure of the run beside the caller, once', async () => {
    using buffer = new ReplayBuffer({ storage: new LazyStackStorage(10) })
    const collector = collectorOf({
      replayBuffer: buffer,
      policy: () => Promise.reject(new Error('no model')),
    })
    collector.start()
    await expect(collector.shutdown()).rejects.toThrow('no model')
    await collector.shutdown()
    expect(() => collectorOf({}).start()).toThrow(failing('INCOMPATIBLE', /replayBuffer/))
  })
})

it('stamps turns with the version of the policy', async () => {
  const collector = collectorOf({ trackPolicyVersion: true, flattenData: true })
  expect(numbers(await collector.rollout(), 'policy_version')).toEqual([0, 0, 0, 0])
  expect(collector.incrementVersion()).toBe(1)
  await collector.rollout()
  expect(numbers(await collector.rollout(), 'policy_version')).toEqual([1, 1, 1, 1])
  const version = new PolicyVersion()
  expect(collectorOf({ trackPolicyVersion: version }).policyVersion).toBe(0)
  expect(() => collectorOf({}).incrementVersion()).toThrow(failing('INCOMPATIBLE', /trackPolicyVersion/))
})

it('changes batches by a function that is set once', async () => {
  const collector = collectorOf({ flattenData: true })
  collector.setPostproc((batch) => (batch as TensorDict).select(['query']))
  expect((await collector.rollout())?.keys()).toEqual(['query'])
  expect(() => collector.setPostproc((batch) => batch)).toThrow(failing('INCOMPATIBLE', /once/))
})

it('isolates an element that hangs or throws, under a deadline', async () => {
  const odd = replyPolicy({
    inputMode: 'history',
    reply: ([asked]) => {
      if ((asked as { content: string }).content === 'q1') throw new Error('no')
      return 'x'
    },
  })
  const batch = await collectorOf({ policy: odd, timeoutMs: 1000, flattenData: true }).rollout()
  const errors = (batch as TensorDict).value(['next', 'error'])
  expect(errors).toEqual([null, { status: 'error', message: 'no' }, null, null])
})

it('stops at a signal, and goes on afterwards without a turn lost', async () => {
  const stop = new AbortController()
  const watched = replyPolicy({
    inputMode: 'history',
    reply: (_, at) => {
      if (at === 3) stop.abort()
      return 'x'
    },
  })
  const collector = collectorOf({ policy: watched, signal: stop.signal })
  await collector.rollout()
  await expect(collector.rollout()).rejects.toThrow(failing('ABORTED', /after 4 turns/))
})

it('takes a wrapper as it is', async () => {
  const collector = collectorOf({ policy: { forward: policy } })
  expect((await collector.rollout())?.batchSize).toEqual([4, 1])
})

it('refuses options that contradict each other', () => {
  const refused = (options: Partial<LLMCollectorOptions>) => () => collectorOf(options)
  expect(refused({ yieldOnlyLastSteps: true, yieldCompletedTrajectories: false })).toThrow(
    failing('INCOMPATIBLE'),
  )
  expect(refused({ yieldOnlyLastSteps: true, flattenData: true })).toThrow(
    failing('INCOMPATIBLE', /flattenData/),
  )
  expect(refused({ yieldOnlyLastSteps: true, resetAtEachIter: true })).toThrow(failing('INCOMPATIBLE'))
  expect(refused({ env: new ChatEnv({ batchSize: [2, 2] }) })).toThrow(failing('SHAPE_MISMATCH'))
  expect(refused({ dialogTurnsPerBatch: 0 })).toThrow(failing('OUT_OF_RANGE', /dialogTurnsPerBatch/))
  expect(refused({ totalDialogTurns: 0.5 })).toThrow(failing('OUT_OF_RANGE', /totalDialogTurns/))
  expect(refused({ timeoutMs: 0 })).toThrow(failing('OUT_OF_RANGE', /timeoutMs/))
  expect(refused({ policy: 3 as never })).toThrow(failing('MALFORMED', /policy/))
  expect(refused({ rollouter: 3 } as never)).toThrow(failing('UNKNOWN_NAME', /rollouter/))
})
