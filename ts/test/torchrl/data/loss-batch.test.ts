import { describe, expect, it } from 'vitest'
import { Decoder } from '../../../src/model/index.js'
import { Ragged, Tensor, TensorDict } from '../../../src/tensor/index.js'
import { lossBatch, TransformersWrapper } from '../../../src/torchrl/index.js'
import { failing } from '../envs/chats.js'

const shape = {
  model_type: 'qwen2',
  vocab_size: 16,
  hidden_size: 8,
  intermediate_size: 16,
  num_hidden_layers: 1,
  num_attention_heads: 2,
} as const

async function drawn(decoder: Decoder, padOutput: boolean) {
  const generateKwargs = { maxNewTokens: 4, stopIds: [3], seed: 5 }
  const wrapper = new TransformersWrapper(decoder, { inputMode: 'tokens', generateKwargs, padOutput })
  const prompts = [[1, 2, 4], [7], [9, 8]].map((ids) => Tensor.from(Uint32Array.from(ids)))
  const tokens = TensorDict.from({ prompt: Ragged.fromRows(prompts) }, { batchSize: [3] })
  const dict = await wrapper.forward(TensorDict.from({ tokens }, { batchSize: [3] }))
  return dict.set('advantage', Tensor.from(Float32Array.of(1, -1, 0.5), { shape: [3, 1, 1] }))
}

describe('lossBatch', () => {
  it('reads the same sequences out of ragged and padded rows, with the bits of a forward pass', async () => {
    using decoder = Decoder.fromSeed(shape, { seed: 1 })
    const [ragged, padded] = [lossBatch(await drawn(decoder, false)), lossBatch(await drawn(decoder, true))]
    expect(padded).toEqual(ragged)
    expect(ragged.advantage).toEqual(Float32Array.of(1, -1, 0.5))
    const { ids, offsets, mask } = ragged
    const { logProb } = await decoder.forward({ ids, offsets, mask })
    const trained = (values: Float32Array) => values.filter((_, at) => ragged.mask[at] === 1)
    expect(trained(logProb)).toEqual(trained(ragged.oldLogProb))
    expect(trained(logProb).length).toBe(ragged.mask.reduce((sum, flag) => sum + flag, 0))
    expect(ragged.mask[0]).toBe(0)
  })

  it('takes an advantage for each token', async () => {
    using decoder = Decoder.fromSeed(shape, { seed: 1 })
    const dict = await drawn(decoder, true)
    const { shape: sizes } = dict.tensor(['tokens', 'full'])
    const each = Tensor.from(
      Float32Array.from({ length: sizes.reduce((a, b) => a * b) }, (_, at) => at),
      { shape: [...sizes] },
    )
    const { advantage, ids } = lossBatch(dict.set('advantage', each))
    expect(advantage.length).toBe(ids.length)
    expect([...advantage].every((value, at) => at === 0 || value > (advantage[at - 1] ?? 0))).toBe(true)
  })

  it('refuses columns that are absent, of another length, or not finite where they are trained', async () => {
    using decoder = Decoder.fromSeed(shape, { seed: 1 })
    const dict = await drawn(decoder, false)
    const other =
      (change: (copy: TensorDict) => TensorDict, options = {}) =>
      () =>
        lossBatch(change(dict.clone()), options)
    expect(other((copy) => copy.exclude(['advantage']))).toThrow(failing('UNKNOWN_NAME', /advantage/))
    expect(other((copy) => copy, { logProbsKey: ['log_probs', 'response'] })).toThrow(
      failing('SHAPE_MISMATCH', /log_probs.response/),
    )
    expect(other((copy) => copy, { maskKey: ['masks', 'all_attention_mask'] })).toThrow(
      failing('NON_FINITE', /log_probs.full/),
    )
    expect(other((copy) => copy.set('advantage', Tensor.from([1, 2])))).toThrow(
      failing('SHAPE_MISMATCH', /advantage/),
    )
    expect(other((copy) => copy, { mask: 'all' } as never)).toThrow(failing('UNKNOWN_NAME', /mask/))
  })
})
