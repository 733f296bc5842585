import { describe, expect, it } from 'vitest'
import { checkEnvSpecs } from '../../../src/spec/index.js'
import { NonTensorStack } from '../../../src/tensor/index.js'
import { DatasetChatEnv, replyPolicy, specEnvOf } from '../../../src/torchrl/index.js'
import { asked, failing, user } from './chats.js'

describe('DatasetChatEnv', () => {
  const dataset = Array.from({ length: 5 }, (_, at) => ({ text: `q${at}`, answer: `a${at}` }))

  it('shuffles by its seed, every row once each time through', async () => {
    const take = async (seed: number) => {
      const env = new DatasetChatEnv({ dataset, seed, numEnvs: 5 })
      return (await env.reset()).value('query') as string[]
    }
    const [one, same, other] = [await take(1), await take(1), await take(2)]
    expect(one).toEqual(same)
    expect(one).not.toEqual(other)
    expect([...one].sort()).toEqual(['q0', 'q1', 'q2', 'q3', 'q4'])
  })

  it('keeps the columns of a row to the end of its episode, and takes rows that a reset brings', async () => {
    const env = new DatasetChatEnv({ dataset, shuffle: false })
    const dict = await env.reset()
    const root = await replyPolicy({ inputMode: 'history', reply: () => 'x' })(dict)
    expect((await env.step(root)).value('answer')).toEqual(['a0'])
    const own = asked('mine').set('answer', new NonTensorStack(['own']))
    expect((await env.reset(own)).value(['history', 'prompt'])).toEqual([[user('mine')]])
    expect((await env.reset()).value('query')).toEqual(['q1'])
  })

  it('does what its specs say', async () => {
    await checkEnvSpecs(specEnvOf(new DatasetChatEnv({ dataset, numEnvs: 3, repeats: 2 })), { steps: 2 })
  })

  it('begins again, and goes on where a state was taken', async () => {
    const env = new DatasetChatEnv({ dataset, repeats: 3, numEnvs: 2 })
    const seen = async () => (await env.reset()).value('query')
    const first = await seen()
    const state = JSON.parse(JSON.stringify(env.stateDict()))
    const second = await seen()
    await seen()
    env.loadStateDict(state)
    expect(await seen()).toEqual(second)
    env.resetDataloader()
    expect(await seen()).toEqual(first)
    for (const wrong of [
      {},
      { dataset: { position: 0 }, numTaken: 4 },
      { ...state, more: 1 },
      { dataset: {}, numTaken: 0 },
    ]) {
      expect(() => env.loadStateDict(wrong)).toThrow(expect.objectContaining({ name: 'FulmarError' }))
    }
    expect(await seen()).toEqual(second)
  })

  it('refuses rows that are none', () => {
    const made =
      (rows: unknown, options = {}) =>
      () =>
        new DatasetChatEnv({ dataset: rows as never, ...options })
    expect(made([])).toThrow(failing('EMPTY'))
    expect(made(['q'])).toThrow(failing('MALFORMED'))
    expect(made([{ prompt: 'q' }])).toThrow(failing('INCOMPATIBLE', /query/))
    expect(made([{ query: 'q' }], { repeats: 0 })).toThrow(failing('OUT_OF_RANGE'))
    expect(made([{ query: 'q' }], { batchSize: 2 })).toThrow(failing('UNKNOWN_NAME'))
  })
})
