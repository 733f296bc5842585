import { describe, expect, it } from 'vitest'
import { Ragged, Tensor, TensorDict } from '../../../src/tensor/index.js'
import { ScriptedPolicy } from '../../../src/testing/index.js'
import { LLMWrapperBase, vLLMWrapper } from '../../../src/torchrl/index.js'
import { AsyncVLLM } from '../../../src/vllm/index.js'
import { FakeVllm } from '../../vllm/fake-vllm.js'

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

  it('sends biases of single ids, and refuses other rules of drawing before it asks', async () => {
    const fake = await FakeVllm.start()
    const policy = await AsyncVLLM.connect([fake.url])
    const tokens = { inputMode: 'tokens' } as const
    const sequenceBias = [[[3], -4]] as const
    const wrapper = new vLLMWrapper(policy, { ...tokens, generateKwargs: { maxNewTokens: 2, sequenceBias } })
    await wrapper.forward(prompts())
    const numAsked = fake.requests.length
    expect(fake.requests.slice(-2)).toMatchObject([{ logit_bias: { 3: -4 } }, { logit_bias: { 3: -4 } }])
    const refused = {
      code: 'UNAVAILABLE',
      message: expect.stringContaining('topH must not be given to vLLM'),
    }
    const generateKwargs = { topH: 0.5 }
    expect(() => new vLLMWrapper(policy, { ...tokens, generateKwargs })).toThrow(
      expect.objectContaining(refused),
    )
    await expect(wrapper.forward(prompts(), { generateKwargs })).rejects.toMatchObject(refused)
    const stream = policy.stream({
      ...{ requestId: 'a', promptIds: Uint32Array.of(1), seed: 0, maxTokens: 2, stopIds: [] },
      ...generateKwargs,
    })
    await expect(stream.result).rejects.toMatchObject(refused)
    expect(fake.requests).toHaveLength(numAsked)
    await policy.close()
    await fake.close()
  })

  it('streams all rows and samples, and then gives what forward gives', async () => {
    const fake = await FakeVllm.start()
    const policy = await AsyncVLLM.connect([fake.url])
    const kwargs = { maxNewTokens: 4, n: 2, seed: 3 }
    const wrapper = () =>
      new vLLMWrapper(policy, { inputMode: 'tokens', padOutput: true, numSamples: 2, generateKwargs: kwargs })
    const whole = await wrapper().forward(prompts())
    const stream = wrapper().stream(prompts())
    const told = new Map<string, number[]>()
    for await (const { row, sample, ids, logProbs } of stream) {
      expect([ids.length, logProbs.length]).toEqual([1, 1])
      told.set(`${row}/${sample}`, [...(told.get(`${row}/${sample}`) ?? []), ...ids])
    }
    const output = await stream.result
    expect(output.batchSize).toEqual([2, 2])
    const ids = (dict: TensorDict) => Array.from(dict.tensor(['tokens', 'response']).data, Number)
    expect(ids(output)).toEqual(ids(whole))
    expect(['0/0', '0/1', '1/0', '1/1'].flatMap((key) => told.get(key) ?? [])).toEqual(ids(whole))
    await policy.close()
    await fake.close()
  })

  it('streams nothing that is scored, and from no policy that cannot', async () => {
    const fake = await FakeVllm.start()
    const policy = await AsyncVLLM.connect([fake.url])
    const score = new vLLMWrapper(policy, { inputMode: 'tokens', generate: false })
    const full = TensorDict.from({ full: Ragged.fromRows([Tensor.from([1, 2])]) }, { batchSize: [1] })
    const scored = score.stream(TensorDict.from({ tokens: full }, { batchSize: [1] })).result
    await expect(scored).rejects.toMatchObject({
      code: 'INCOMPATIBLE',
      message: expect.stringMatching(/generate must be true/),
    })
    const deaf = new LLMWrapperBase(new ScriptedPolicy({ reply: () => [1] }), { inputMode: 'tokens' })
    await expect(deaf.stream(prompts()).result).rejects.toMatchObject({
      code: 'INCOMPATIBLE',
      message: expect.stringMatching(/method stream/),
    })
    await policy.close()
    await fake.close()
  })
})
