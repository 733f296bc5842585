import { describe, expect, it } from 'vitest'
import { Rng } from '../../../src/core/index.js'
import { NonTensorData, Tensor, TensorDict } from '../../../src/tensor/index.js'
import { CharTokenizer } from '../../../src/tokenizer/index.js'
import {
  ChatEnv,
  DatasetChatEnv,
  PolicyVersion,
  replyPolicy,
  rollout,
  StepCounter,
  TransformedEnv,
} from '../../../src/torchrl/index.js'
import { asked, assistant, failing, template, user } from './chats.js'

describe('rollout', () => {
  it('takes turns until its last step, and keeps each of them', async () => {
    const env = new ChatEnv({ batchSize: 2 })
    const policy = replyPolicy({ inputMode: 'history', reply: (prompt, at) => `${at}${prompt.length}` })
    const steps = await rollout(env, policy, { maxSteps: 2, dict: asked('a', 'b') })
    expect(steps.batchSize).toEqual([2, 2])
    const [first, second] = steps.parts
    expect(first?.value(['history', 'full'])).toEqual([
      [user('a'), assistant('01')],
      [user('b'), assistant('11')],
    ])
    expect(second?.value(['history', 'prompt'])).toEqual(first?.value(['next', 'history', 'prompt']))
    expect(second?.value('query')).toEqual(['a', 'b'])
  })

  it('lets elements that are done begin anew, and the others go on', async () => {
    const dataset = Array.from({ length: 9 }, (_, at) => ({ query: `q${at}` }))
    const ends = {
      afterStep: (next: TensorDict, root: TensorDict) => {
        const isOver = (root.value('query') as string[]).map((query) =>
          Number(query === 'q1' || query === 'q3'),
        )
        return next.set(
          'done',
          Tensor.from(Uint8Array.from(isOver), { shape: [isOver.length, 1], dtype: 'bool' }),
        )
      },
    }
    const env = new DatasetChatEnv({ dataset, shuffle: false, numEnvs: 3, transforms: [ends] })
    const policy = replyPolicy({ inputMode: 'history', reply: () => 'x' })
    const steps = await rollout(env, policy, { maxSteps: 3, breakWhenAnyDone: false })
    expect(steps.parts.map((part) => part.value('query'))).toEqual([
      ['q0', 'q1', 'q2'],
      ['q0', 'q3', 'q2'],
      ['q0', 'q4', 'q2'],
    ])
    const lengths = (part: TensorDict) =>
      (part.value(['history', 'prompt']) as unknown[][]).map((chat) => chat.length)
    expect(steps.parts.map(lengths)).toEqual([
      [1, 1, 1],
      [2, 1, 2],
      [3, 1, 3],
    ])
    env.resetDataloader()
    const broken = await rollout(env, policy, { maxSteps: 3 })
    expect(broken.batchSize).toEqual([3, 1])
  })

  it('begins anew where a first prompt is already too long, and gives up at a limit', async () => {
    const dataset = ['long '.repeat(99), 'a', 'long '.repeat(99), 'b'].map((query) => ({ query }))
    const chat = { tokenizer: new CharTokenizer(), template, maxPromptTokens: 100 }
    const env = new DatasetChatEnv({ dataset, shuffle: false, numEnvs: 2, ...chat })
    const policy = replyPolicy({ inputMode: 'history', reply: () => 'x' })
    const { parts } = await rollout(env, policy, { maxSteps: 1 })
    expect(new Set(parts[0]?.value('query') as string[])).toEqual(new Set(['a', 'b']))
    for (const [count, fits] of [
      [64, true],
      [65, false],
    ] as const) {
      const rows = Array.from({ length: 66 }, (_, at) => ({
        query: at < count ? 'long '.repeat(99) : 'short',
      }))
      const late = new DatasetChatEnv({ dataset: rows, shuffle: false, ...chat })
      const tried = rollout(late, policy, { maxSteps: 1 })
      if (fits) expect((await tried).parts[0]?.value('query')).toEqual(['short'])
      else await expect(tried).rejects.toThrow(failing('LIMIT_EXCEEDED', /64 tries/))
    }
  })

  it('begins anew beside values that the whole batch shares, though they have changed', async () => {
    const version = new PolicyVersion({ versionType: 'uuid', rng: Rng.fromSeed(1) })
    const dataset = [{ query: 'a' }, { query: 'b' }, { query: 'c' }]
    const transforms = [new StepCounter({ maxSteps: 1 }), version]
    const env = new DatasetChatEnv({ dataset, shuffle: false, numEnvs: 2, transforms })
    const ends = {
      afterStep: (next: TensorDict) =>
        next.set('done', Tensor.from(Uint8Array.of(0, 1), { shape: [2, 1], dtype: 'bool' })),
    }
    const half = new TransformedEnv(env, [ends])
    const talk = replyPolicy({ inputMode: 'history', reply: () => 'x' })
    const policy = (dict: TensorDict) => {
      version.incrementVersion()
      return talk(dict)
    }
    const { parts } = await rollout(half, policy, { maxSteps: 2, breakWhenAnyDone: false })
    expect(parts[1]?.value('query')).toEqual(['a', 'c'])
    expect(parts[1]?.has('policy_version')).toBe(true)
  })

  it('refuses what it cannot do', async () => {
    const env = new ChatEnv({ batchSize: [1, 1] })
    const policy = replyPolicy({ inputMode: 'history', reply: () => 'x' })
    const dict = TensorDict.from({ query: new NonTensorData('q') })
    await expect(rollout(env, policy, { maxSteps: 0, dict })).rejects.toThrow(failing('OUT_OF_RANGE'))
    const anew = rollout(env, policy, { maxSteps: 1, dict, breakWhenAnyDone: false })
    await expect(anew).rejects.toThrow(failing('SHAPE_MISMATCH'))
    const stopped = rollout(env, policy, { maxSteps: 1, dict, signal: AbortSignal.abort() })
    await expect(stopped).rejects.toThrow(failing('ABORTED'))
    await expect(rollout(env, policy, { maxStep: 1 } as never)).rejects.toThrow(failing('UNKNOWN_NAME'))
  })
})
