import { describe, expect, it } from 'vitest'
import { Decoder } from '../../../src/model/index.js'
import {
  type Json,
  NonTensorData,
  NonTensorStack,
  Ragged,
  Tensor,
  TensorDict,
} from '../../../src/tensor/index.js'
import { HfTokenizer } from '../../../src/tokenizer/index.js'
import { TransformersWrapper } from '../../../src/torchrl/index.js'
import { TINY } from '../../model/tiny.js'

const folder = new URL('../../../../tests/golden/tokenizer/qwen2', import.meta.url).pathname
const tokenizer = await HfTokenizer.fromFolder(folder)
const decoder = Decoder.fromSeed(
  { ...TINY, vocab_size: tokenizer.vocabSize, initializer_range: 0.02 },
  { seed: 3 },
)
const rendering = { templateName: 'qwen' }
const generateKwargs = { maxNewTokens: 3, stopIds: [] }

/** Digits are tokens of their own: rendered prompts of 20 and 27 tokens. */
const PROMPTS = [
  [
    { role: 'system', content: '123' },
    { role: 'user', content: '1234' },
  ],
  [
    { role: 'system', content: '1234567' },
    { role: 'user', content: '7654321' },
  ],
]
const FULL = PROMPTS.map((chat) => [...chat, { role: 'assistant', content: '321' }])

const batchOf = (root: string, name: string, values: readonly Json[]) => {
  const inner = TensorDict.from({ [name]: new NonTensorStack(values) }, { batchSize: [values.length] })
  return TensorDict.from({ [root]: inner }, { batchSize: [values.length] })
}
const histories = () => batchOf('history', 'prompt', PROMPTS)
const lengths = (rows: Ragged) =>
  Array.from(rows.offsets.subarray(1), (end, row) => end - (rows.offsets[row] ?? 0))
const shapeOf = (dict: TensorDict, ...key: string[]) => {
  const field = dict.get(key)
  return field instanceof Ragged ? lengths(field) : field instanceof Tensor ? [...field.shape] : undefined
}
const counts = (dict: TensorDict, name: string) =>
  (dict.value(['history', name]) as Json[][]).map((chat) => chat.length)

describe('TransformersWrapper', () => {
  it('gives ragged rows of the prompts, the responses and both', async () => {
    const wrapper = new TransformersWrapper(decoder, { tokenizer, rendering, generateKwargs })
    const dict = histories()
    expect(await wrapper.forward(dict)).toBe(dict)
    expect(wrapper.inKeys).toEqual([['history', 'prompt']])
    expect(wrapper.outKeys).toEqual([['text'], ['masks'], ['tokens'], ['log_probs'], ['history']])
    const shapes = ['prompt', 'response', 'full'].map((name) => shapeOf(dict, 'tokens', name))
    expect(shapes).toEqual([
      [20, 27],
      [3, 3],
      [23, 30],
    ])
    expect(shapeOf(dict, 'masks', 'all_attention_mask')).toEqual([23, 30])
    expect(shapeOf(dict, 'log_probs', 'response')).toEqual([3, 3])
    expect(['prompt', 'response', 'full'].map((name) => counts(dict, name))).toEqual([
      [2, 2],
      [1, 1],
      [3, 3],
    ])
  })

  it('pads prompts at the left and responses at the right, and what is padding counts for nothing', async () => {
    const wrapper = new TransformersWrapper(decoder, {
      tokenizer,
      rendering,
      generateKwargs,
      padOutput: true,
    })
    const dict = await wrapper.forward(histories())
    expect(shapeOf(dict, 'tokens', 'prompt')).toEqual([2, 27])
    expect(shapeOf(dict, 'tokens', 'response')).toEqual([2, 3])
    expect(shapeOf(dict, 'tokens', 'full')).toEqual([2, 30])
    const mask = dict.tensor(['masks', 'all_attention_mask'])
    expect([mask.dtype, mask.shape]).toEqual(['bool', [2, 30]])
    expect([...mask.select(0, 0).data].slice(0, 8)).toEqual([0, 0, 0, 0, 0, 0, 0, 1])
    const assistant = dict.tensor(['masks', 'all_assistant_mask']).select(0, 0)
    expect([...assistant.data].map(Number)).toEqual([...new Array(27).fill(0), 1, 1, 1])
    const logProbs = dict.tensor(['log_probs', 'response'])
    expect([logProbs.dtype, logProbs.shape]).toEqual(['f32', [2, 3]])
    const full = dict.tensor(['log_probs', 'full']).select(0, 0).toFloat32()
    expect([...full.subarray(0, 8)]).toEqual([0, 0, 0, 0, 0, 0, 0, Number.NaN])
    expect([...full.subarray(27)]).toEqual([...logProbs.select(0, 0).toFloat32()])
    expect(dict.value(['text', 'prompt'])).toEqual([
      '<|im_start|>system\n123<|im_end|>\n<|im_start|>user\n1234<|im_end|>\n<|im_start|>assistant\n',
      '<|im_start|>system\n1234567<|im_end|>\n<|im_start|>user\n7654321<|im_end|>\n<|im_start|>assistant\n',
    ])
  })

  it('gives each prompt several samples in a dimension of their own', async () => {
    const options = { tokenizer, rendering, generateKwargs, numSamples: 2 }
    const padded = await new TransformersWrapper(decoder, { ...options, padOutput: true }).forward(
      histories(),
    )
    expect(padded.batchSize).toEqual([2, 2])
    const shapes = ['prompt', 'response', 'full'].map((name) => shapeOf(padded, 'tokens', name))
    expect(shapes).toEqual([
      [2, 2, 27],
      [2, 2, 3],
      [2, 2, 30],
    ])
    const chats = padded.value(['history', 'full']) as Json[][][]
    expect(chats.map((samples) => samples.map((chat) => chat.length))).toEqual([
      [3, 3],
      [3, 3],
    ])
    const ragged = new TransformersWrapper(decoder, options)
    await expect(ragged.forward(histories())).rejects.toMatchObject({ code: 'INCOMPATIBLE' })
    const stack = await ragged.forwardStack(histories())
    expect(stack.batchSize).toEqual([2, 2])
    expect(stack.parts.map((part) => shapeOf(part, 'tokens', 'full'))).toEqual([
      [23, 23],
      [30, 30],
    ])
  })

  it('answers one text without a batch', async () => {
    const wrapper = new TransformersWrapper(decoder, { tokenizer, inputMode: 'text', generateKwargs })
    const dict = TensorDict.from({ text: TensorDict.from({ prompt: new NonTensorData('1') }) })
    await wrapper.forward(dict)
    expect(['prompt', 'response', 'full'].map((name) => shapeOf(dict, 'tokens', name))).toEqual([
      [1],
      [3],
      [4],
    ])
    expect(dict.value(['text', 'prompt'])).toBe('1')
    expect(dict.value(['text', 'full'])).toBe(`1${dict.value(['text', 'response'])}`)
    expect(dict.has('history')).toBe(false)
  })

  it('scores conversations, and what it drew as it drew it', async () => {
    const score = new TransformersWrapper(decoder, { tokenizer, rendering, generate: false })
    const ragged = await score.forward(batchOf('history', 'full', FULL))
    expect(score.inKeys).toEqual([['history', 'full']])
    for (const key of [
      ['tokens', 'full'],
      ['masks', 'all_attention_mask'],
      ['log_probs', 'full'],
    ])
      expect(shapeOf(ragged, ...key)).toEqual([25, 32])
    expect(ragged.has(['tokens', 'response']) || ragged.has(['text', 'response'])).toBe(false)
    const marks = ragged.ragged(['masks', 'all_assistant_mask'])
    expect([...marks.row(0).data].map(Number)).toEqual([...new Array(20).fill(0), 1, 1, 1, 0, 0])
    const padded = await score.newVersion({ padOutput: true }).forward(batchOf('history', 'full', FULL))
    expect(shapeOf(padded, 'log_probs', 'full')).toEqual([2, 32])
    const [row, alone] = [
      padded.tensor(['log_probs', 'full']).select(0, 0),
      ragged.ragged(['log_probs', 'full']).row(0),
    ]
    expect([...row.toFloat32()]).toEqual([...new Array(7).fill(0), ...alone.toFloat32()])
    expect(alone.toFloat32()[0]).toBeNaN()
  })

  it.each(['ragged', 'padded'])('scores what it drew, %s, to the bit', async (layout) => {
    const options = { tokenizer, rendering, generateKwargs, padOutput: layout === 'padded' }
    const draw = new TransformersWrapper(decoder, options)
    const dict = await draw.forward(histories())
    const scored = await draw
      .newVersion({ generate: false, inputMode: 'tokens', inPlace: false })
      .forward(dict)
    const drawn = dict.get(['log_probs', 'response'])
    const wanted = drawn instanceof Ragged ? drawn.values : (drawn as Tensor).reshape([6])
    const full = scored.get(['log_probs', 'full'])
    const rows = [0, 1].map((at) =>
      full instanceof Ragged ? full.row(at).toFloat32() : (full as Tensor).select(0, at).toFloat32(),
    )
    expect(rows.flatMap((row) => [...row.slice(-3)])).toEqual([...wanted.toFloat32()])
  })

  it('draws the same for the same seed, and goes on otherwise', async () => {
    const make = () => new TransformersWrapper(decoder, { tokenizer, rendering, generateKwargs })
    const drawn = async (wrapper: TransformersWrapper, seed?: number) => {
      const options = seed === undefined ? {} : { generateKwargs: { seed } }
      return (await wrapper.forward(histories(), options)).value(['text', 'response'])
    }
    const wrapper = make()
    const [first, second] = [await drawn(wrapper), await drawn(wrapper)]
    expect(await drawn(make())).toEqual(first)
    expect(second).not.toEqual(first)
    expect(await drawn(wrapper, 0)).toEqual(first)
    expect(await drawn(wrapper, 9)).toEqual(await drawn(make(), 9))
  })

  it('reads padded prompts again from what it wrote', async () => {
    const options = { inputMode: 'tokens', generateKwargs, padOutput: true } as const
    const wrapper = new TransformersWrapper(decoder, options)
    const prompt = Tensor.from(Uint32Array.of(0, 5, 6, 7, 8, 9), { shape: [2, 3] })
    const mask = Tensor.from(Uint8Array.of(0, 1, 1, 1, 1, 1), { dtype: 'bool', shape: [2, 3] })
    const batchSize = [2]
    const dict = TensorDict.from(
      { tokens: TensorDict.from({ prompt }, { batchSize }), attention_mask: mask },
      { batchSize },
    )
    const call = { generateKwargs: { seed: 4 } }
    await wrapper.forward(dict, call)
    const first = dict.tensor(['tokens', 'full'])
    await wrapper.forward(dict, call)
    expect(dict.tensor(['tokens', 'full']).equals(first)).toBe(true)
    const narrow = Tensor.from(Uint8Array.of(1, 1), { dtype: 'bool', shape: [2, 1] })
    dict.set(['masks', 'all_attention_mask'], narrow)
    await expect(wrapper.forward(dict)).rejects.toMatchObject({ code: 'SHAPE_MISMATCH' })
  })

  it('keeps the end of sequence apart from padding though both are one id', async () => {
    const eos = tokenizer.idOf('<|im_end|>') ?? 0
    const prompt = Tensor.from(Uint32Array.of(eos, eos, 16, 0, 17, eos), { shape: [2, 3] })
    const mask = Tensor.from(Uint8Array.of(1, 1, 1, 0, 1, 1), { dtype: 'bool', shape: [2, 3] })
    const dict = TensorDict.from(
      { tokens: TensorDict.from({ prompt }, { batchSize: [2] }), attention_mask: mask },
      { batchSize: [2] },
    )
    const options = { inputMode: 'tokens', generateKwargs, padId: eos, inPlace: false } as const
    const output = await new TransformersWrapper(decoder, options).forward(dict)
    expect(lengths(output.ragged(['tokens', 'prompt']))).toEqual([3, 2])
    expect([...output.ragged(['tokens', 'prompt']).row(0).data]).toEqual([BigInt(eos), BigInt(eos), 16n])
  })
})
