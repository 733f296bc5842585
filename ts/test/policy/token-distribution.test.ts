import { describe, expect, it } from 'vitest'
import { Decoder } from '../../src/model/index.js'
import { DecoderPolicy, TokenDistribution } from '../../src/policy/index.js'
import { type Json, NonTensorStack, Ragged, Tensor, TensorDict } from '../../src/tensor/index.js'
import { ScriptedPolicy } from '../../src/testing/index.js'
import { HfTokenizer } from '../../src/tokenizer/index.js'
import { LLMWrapperBase, TransformersWrapper } from '../../src/torchrl/index.js'
import { TINY } from '../model/tiny.js'

const code = (value: string) => expect.objectContaining({ name: 'FulmarError', code: value })
const tiny = Decoder.fromSeed({ ...TINY, vocab_size: 11, initializer_range: 0.5 }, { seed: 3 })
const ids = Uint32Array.of(1, 2, 3, 4, 5, 6, 7)
const offsets = Uint32Array.of(0, 4, 7)
const mask = Uint8Array.of(0, 1, 0, 1, 0, 1, 1)

describe('TokenDistribution', () => {
  it('says of the tokens that are there what scoring says, to the bit', async () => {
    const distribution = await new DecoderPolicy(tiny).distribution({ ids, offsets, mask })
    const { logProb, entropy } = await tiny.score({ ids, offsets, mask })
    expect(distribution.vocabSize).toBe(11)
    expect(distribution.logProb()).toEqual(logProb)
    for (const [at, value] of distribution.entropy().entries()) expect(value).toBeCloseTo(entropy[at] ?? 0, 5)
  })

  it('is a distribution in each place, and the same whatever token stands there', async () => {
    const policy = new DecoderPolicy(tiny)
    const distribution = await policy.distribution({ ids, offsets, mask })
    // The last token of each sequence changes nothing before it.
    const others = Uint32Array.of(1, 2, 3, 9, 5, 6, 0)
    const other = await policy.distribution({ ids: others, offsets, mask })
    for (const at of [1, 3, 5, 6]) {
      const sum = distribution.logProbsAt(at).reduce((total, logProb) => total + Math.exp(logProb), 0)
      expect(sum).toBeCloseTo(1, 5)
      expect(other.logProbsAt(at)).toEqual(distribution.logProbsAt(at))
    }
    expect(distribution.logProb(others)).toEqual(other.logProb())
  })

  it('draws as often as its probabilities say, and the same by the same seed', async () => {
    const distribution = await new DecoderPolicy(tiny).distribution({ ids, offsets, mask })
    const counts = new Float64Array(11)
    const numDraws = 4000
    for (let seed = 0; seed < numDraws; seed++) {
      const drawn = distribution.sample({ seed })
      expect([drawn[0], drawn[2], drawn[4]]).toEqual([1, 3, 5])
      counts[drawn[3] ?? 0] = (counts[drawn[3] ?? 0] ?? 0) + 1
    }
    const expected = distribution.logProbsAt(3).map(Math.exp)
    const chiSquare = counts.reduce((sum, count, id) => {
      const mean = numDraws * (expected[id] ?? 0)
      return sum + (count - mean) ** 2 / mean
    }, 0)
    // The 99.9th percentile with 10 degrees of freedom.
    expect(chiSquare).toBeLessThan(29.6)
    expect(distribution.sample({ seed: 5 })).toEqual(distribution.sample({ seed: 5 }))
  })

  it('refuses what does not fit, by name', async () => {
    const logProbs = new Float32Array(8).fill(Math.log(0.5))
    const parts = { ids, offsets, mask, logProbs }
    const distribution = new TokenDistribution(parts)
    expect(distribution.vocabSize).toBe(2)
    expect(() => distribution.logProbsAt(0)).toThrow(code('OUT_OF_RANGE'))
    expect(() => distribution.logProbsAt(7)).toThrow(code('OUT_OF_RANGE'))
    expect(() => distribution.logProb()).toThrow(code('OUT_OF_RANGE'))
    expect(() => distribution.logProb(Uint32Array.of(1))).toThrow(code('SHAPE_MISMATCH'))
    expect(() => distribution.sample({ seed: -1 })).toThrow(code('OUT_OF_RANGE'))
    expect(() => new TokenDistribution({ ...parts, mask: new Uint8Array(7) })).toThrow(code('EMPTY'))
    expect(() => new TokenDistribution({ ...parts, mask: Uint8Array.of(1) })).toThrow(code('SHAPE_MISMATCH'))
    expect(() => new TokenDistribution({ ...parts, logProbs: logProbs.subarray(1) })).toThrow(
      code('SHAPE_MISMATCH'),
    )
    const wrong = { ...parts, ids: [1] as unknown as Uint32Array }
    expect(() => new TokenDistribution(wrong)).toThrow(code('MALFORMED'))
  })

  it('takes a certain token for one without entropy', () => {
    const logProbs = Float32Array.of(0, Number.NEGATIVE_INFINITY)
    const sure = {
      ids: Uint32Array.of(0, 0),
      offsets: Uint32Array.of(0, 2),
      mask: Uint8Array.of(0, 1),
      logProbs,
    }
    expect([...new TokenDistribution(sure).entropy()]).toEqual([0, 0])
  })
})

const folder = new URL('../../../tests/golden/tokenizer/qwen2', import.meta.url).pathname
const tokenizer = await HfTokenizer.fromFolder(folder)
const decoder = Decoder.fromSeed(
  { ...TINY, vocab_size: tokenizer.vocabSize, initializer_range: 0.02 },
  { seed: 3 },
)
const CHATS: readonly Json[] = [
  [
    { role: 'user', content: '1234' },
    { role: 'assistant', content: '56' },
  ],
  [
    { role: 'user', content: '7' },
    { role: 'assistant', content: '8' },
  ],
]
const chats = () => {
  const full = TensorDict.from({ full: new NonTensorStack(CHATS) }, { batchSize: [2] })
  return TensorDict.from({ history: full }, { batchSize: [2] })
}
const options = { tokenizer, rendering: { templateName: 'qwen' }, generate: false } as const
const numMarked = ({ mask }: TokenDistribution) => mask.reduce((sum, flag) => sum + flag, 0)

describe('getDist', () => {
  it.each([false, true])(
    "tells all tokens' distributions in the order of forward's log-probs (padOutput %s)",
    async (padOutput) => {
      const wrapper = new TransformersWrapper(decoder, { ...options, padOutput, inPlace: false })
      const distribution = await wrapper.getDist(chats())
      const scored = await wrapper.newVersion({ padOutput: false }).forward(chats())
      const logProbs = scored.ragged(['log_probs', 'full'])
      expect(distribution.offsets).toEqual(logProbs.offsets)
      const told = logProbs.values.toFloat32().map((value) => (Number.isNaN(value) ? 0 : value))
      expect(distribution.logProb()).toEqual(told)
      expect(numMarked(distribution)).toBe(told.length - 2)
    },
  )

  it('tells those of the assistant, and of what follows a prompt', async () => {
    const wrapper = new TransformersWrapper(decoder, options)
    const dict = chats()
    const assistant = await wrapper.getDist(dict, { mask: 'assistant' })
    const scored = await wrapper.newVersion({ inPlace: false }).forward(dict)
    const masks = scored.ragged(['masks', 'all_assistant_mask'])
    expect(assistant.mask).toEqual(Uint8Array.from(masks.values.data as Uint8Array))
    expect(numMarked(assistant)).toBeGreaterThan(0)
    // Without prompts, what follows them is the assistant's.
    expect((await wrapper.getDist(dict, { mask: 'response' })).mask).toEqual(assistant.mask)
  })

  it.each([false, true])(
    'marks the response of what was drawn, however it is padded (padOutput %s)',
    async (padOutput) => {
      const draw = new TransformersWrapper(tiny, {
        ...{ inputMode: 'tokens', padOutput, generateKwargs: { maxNewTokens: 3, stopIds: [] } },
      })
      const prompt = Ragged.fromRows([Tensor.from([1, 2, 3]), Tensor.from([4])])
      const tokens = TensorDict.from({ prompt }, { batchSize: [2] })
      const drawn = await draw.forward(TensorDict.from({ tokens }, { batchSize: [2] }))
      const score = draw.newVersion({ generate: false })
      const distribution = await score.getDist(drawn, { mask: 'response' })
      expect([...distribution.offsets]).toEqual([0, 6, 10])
      expect([...distribution.mask]).toEqual([0, 0, 0, 1, 1, 1, 0, 1, 1, 1])
      // They were drawn at temperature 1, so the log-probs are those of the draws.
      const told = drawn.get(['log_probs', 'response'])
      const values = told instanceof Ragged ? told.values : (told as Tensor)
      const own = distribution.logProb()
      expect([...own.subarray(3, 6), ...own.subarray(7)]).toEqual([...values.toFloat32()])
    },
  )

  it('tells those of a mask of the caller', async () => {
    const wrapper = new TransformersWrapper(tiny, { inputMode: 'tokens', generate: false })
    const full = Ragged.fromRows([Tensor.from([1, 2, 3]), Tensor.from([4, 5])])
    const own = Ragged.fromRows([Tensor.from([1, 0, 1]), Tensor.from([0, 1])])
    const dict = TensorDict.from(
      { tokens: TensorDict.from({ full }, { batchSize: [2] }), own },
      { batchSize: [2] },
    )
    expect([...(await wrapper.getDist(dict, { mask: ['own'] })).mask]).toEqual([0, 0, 1, 0, 1])
    dict.set(['own'], Ragged.fromRows([Tensor.from([1, 0]), Tensor.from([0, 1])]))
    await expect(wrapper.getDist(dict, { mask: ['own'] })).rejects.toMatchObject({ code: 'SHAPE_MISMATCH' })
    await expect(wrapper.getDist(dict, { mask: 'assistant' })).rejects.toMatchObject({
      code: 'INCOMPATIBLE',
      message: expect.stringMatching(/inputMode 'history'/),
    })
  })

  it('refuses wrappers that draw, and policies that tell no distributions', async () => {
    const draw = new TransformersWrapper(decoder, { ...options, generate: true })
    await expect(draw.getDist(chats())).rejects.toMatchObject({
      code: 'INCOMPATIBLE',
      message: expect.stringMatching(/newVersion/),
    })
    const scripted = new ScriptedPolicy({ reply: () => [1] })
    const score = async () => ({ requestId: '', logProbs: new Float32Array(0), policyVersion: 0 })
    const wrapper = new LLMWrapperBase(Object.assign(scripted, { score }), options)
    await expect(wrapper.getDist(chats())).rejects.toMatchObject({
      code: 'INCOMPATIBLE',
      message: expect.stringMatching(/whole distributions/),
    })
    const unknown = draw.newVersion({ generate: false }).getDist(chats(), { masks: 'all' } as object)
    await expect(unknown).rejects.toMatchObject({ code: 'UNKNOWN_NAME' })
  })
})
