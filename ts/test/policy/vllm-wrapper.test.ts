import { describe, expect, it } from 'vitest'
import { AsyncVLLM, vLLMWrapper } from '../../src/policy/index.js'
import { Ragged, Tensor, TensorDict } from '../../src/tensor/index.js'
import { FakeVllm } from './fake-vllm.js'

const prompts = () => {
  const prompt = Ragged.fromRows([Tensor.from([1, 2, 3]), Tensor.from([4])])
  return TensorDict.from({ tokens: TensorDict.from({ prompt }, { batchSize: [2] }) }, { batchSize: [2] })
}

describe('vLLMWrapper', () => {
  it('scores what it drew as it drew it, padded or not', async () => {
    const fake = await FakeVllm.start()
    const policy = await AsyncVLLM.connect([fake.url])
    for (const padOutput of [false, true]) {
      const options = { inputMode: 'tokens', padOutput, generateKwargs: { maxNewTokens: 5 } } as const
      const draw = new vLLMWrapper(policy, options)
      const drawn = await draw.forward(prompts())
      const score = draw.newVersion({ generate: false, padOutput: false, inPlace: false })
      expect(score).toBeInstanceOf(vLLMWrapper)
      const scored = (await score.forward(drawn)).ragged(['log_probs', 'full'])
      const response = drawn.get(['log_probs', 'response'])
      for (const row of [0, 1]) {
        const own =
          response instanceof Ragged
            ? response.row(row)
            : drawn.tensor(['log_probs', 'response']).select(0, row)
        const full = scored.row(row).toFloat32()
        expect(full[0]).toBeNaN()
        for (const [at, value] of own.toFloat32().entries()) expect(full.at(at - 5)).toBeCloseTo(value, 6)
      }
    }
    await policy.close()
    await fake.close()
  })
})
