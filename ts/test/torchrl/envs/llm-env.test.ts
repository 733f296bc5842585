import { describe, expect, it } from 'vitest'
import { checkEnvSpecs } from '../../../src/spec/index.js'
import { NonTensorData, NonTensorStack, Ragged, Tensor, TensorDict } from '../../../src/tensor/index.js'
import { LLMEnv, specEnvOf } from '../../../src/torchrl/index.js'
import { failing } from './chats.js'

const ids = (...rows: readonly (readonly number[])[]) =>
  Ragged.fromRows(rows.map((row) => Tensor.from(BigInt64Array.from(row, BigInt))))

describe('LLMEnv', () => {
  it('joins texts, and does what its specs say', async () => {
    const env = new LLMEnv({ batchSize: 2, strKey: 'prompt', actionKey: 'said' })
    const dict = TensorDict.from({ prompt: new NonTensorData('a') }, { batchSize: [2] })
    const next = env.step(env.reset(dict).set('said', new NonTensorStack(['b', 'c'])))
    expect(next.value('prompt')).toEqual(['ab', 'ac'])
    await checkEnvSpecs(specEnvOf(env, { dict }))
  })

  it('joins ids with their attention, and assigns rewards and ends', () => {
    const env = new LLMEnv({
      fromText: false,
      batchSize: 2,
      assignReward: true,
      assignDone: true,
      eosTokenId: 9,
    })
    const dict = env.reset(TensorDict.from({ tokens: ids([1], [2, 3]) }, { batchSize: [2] }))
    expect([...dict.ragged('attention_mask').row(1).data]).toEqual([1n, 1n])
    const next = env.step(dict.set('tokens_response', ids([4, 9], [5])))
    expect([...next.ragged('tokens').row(0).data]).toEqual([1n, 4n, 9n])
    expect([...next.ragged('tokens').row(1).data]).toEqual([2n, 3n, 5n])
    expect(next.ragged('attention_mask').row(0).shape).toEqual([3])
    expect([...next.ragged('reward').row(0).data]).toEqual([0, 0])
    expect([...next.ragged(['tokens_data', 'done']).row(0).data]).toEqual([0, 1])
    expect([...next.tensor('done').data, ...next.tensor('terminated').data]).toEqual([1, 0, 1, 0])
    const plain = new LLMEnv({ fromText: false, hasAttention: false })
    expect(plain.observationSpec.keys()).toEqual(['tokens'])
  })

  it('refuses what it cannot do', () => {
    expect(() => new LLMEnv({ assignReward: true })).toThrow(failing('INCOMPATIBLE', /text/))
    expect(() => new LLMEnv({ fromText: false, assignDone: true })).toThrow(
      failing('INCOMPATIBLE', /eosTokenId/),
    )
    expect(() => new LLMEnv({ batchSize: [1, 1] })).toThrow(failing('SHAPE_MISMATCH'))
    expect(() => new LLMEnv({ asLlmData: true } as never)).toThrow(failing('UNKNOWN_NAME'))
    const env = new LLMEnv()
    expect(() => env.reset()).toThrow(failing('EMPTY'))
    expect(() => env.reset(TensorDict.from({}, { batchSize: [1] }))).toThrow(failing('UNKNOWN_NAME', /text/))
    const dict = env.reset(TensorDict.from({ text: new NonTensorStack(['a']) }, { batchSize: [1] }))
    expect(() => env.step(dict)).toThrow(failing('UNKNOWN_NAME', /text_response/))
  })
})
