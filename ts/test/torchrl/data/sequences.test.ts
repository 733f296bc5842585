import { describe, expect, it } from 'vitest'
import { Ragged, Tensor } from '../../../src/tensor/index.js'
import { HfTokenizer } from '../../../src/tokenizer/index.js'
import { ChatHistory, History, LogProbs, Masks, Tokens } from '../../../src/torchrl/index.js'

const failing = (code: string, text = '') =>
  expect.objectContaining({ name: 'FulmarError', code, message: expect.stringContaining(text) })
const tokenizer = await HfTokenizer.fromFolder(
  new URL('../../../../tests/golden/tokenizer/smollm2', import.meta.url).pathname,
)
const two = [
  { role: 'user', content: 'Hello!' },
  { role: 'assistant', content: 'Hi there!' },
]

describe('Tokens, LogProbs and Masks', () => {
  const rows = (...lists: number[][]) =>
    Ragged.fromRows(lists.map((list) => Tensor.from(BigInt64Array.from(list, BigInt))))

  it('keep an end of sequence that also pads', () => {
    const eos = tokenizer.idOf('<|im_end|>') ?? 0
    const tokens = new Tokens({ full: rows([eos, 5, eos], [eos]) })
    for (const side of ['left', 'right'] as const) {
      const padded = tokens.toPadded({ side, value: eos, multipleOf: 4 })
      expect(padded.rows('full').map((row) => row.shape)).toEqual([[4], [4]])
      expect((padded.toRagged().full as Ragged).equals(tokens.full as Ragged)).toBe(true)
    }
  })

  it('pad with what belongs to them', () => {
    const logProbs = new LogProbs({ response: Ragged.fromRows([Tensor.from([-1, -2]), Tensor.from([-3])]) })
    const padded = logProbs.toPadded({ side: 'right' })
    expect(padded.rows('response')[1]?.data).toEqual(Float32Array.of(-3, 0))
    const masks = new ChatHistory({ full: History.fromChats([two, two]) }).toMasks({
      tokenizer,
      templateName: 'chatml_format',
    })
    const wide = masks.toPadded({ side: 'left', multipleOf: 1000 }).rows('allAttentionMask')[0]
    expect([wide?.dtype, wide?.data[0], wide?.data.at(-1)]).toEqual(['bool', 0, 1])
    expect(Number.isNaN(new LogProbs({ full: Tensor.from([Number.NaN]) }).rows('full')[0]?.data[0])).toBe(
      true,
    )
    expect(() => new Tokens({ full: rows([1]) }).toPadded({ side: 'left' })).toThrow(
      failing('INCOMPATIBLE', 'value'),
    )
  })

  it('refuse what is of another type, shape or batch', () => {
    const padded = Tensor.from(BigInt64Array.of(1n, 2n), { shape: [1, 2] })
    const wrong: [() => unknown, string][] = [
      [() => new Tokens({ full: Tensor.from([0.5]) }), 'INCOMPATIBLE'],
      [() => new LogProbs({ full: rows([1]) }), 'INCOMPATIBLE'],
      [() => new Masks({ allAttentionMask: rows([1]) }), 'INCOMPATIBLE'],
      [() => new Tokens({ full: padded }), 'SHAPE_MISMATCH'],
      [() => new Tokens({ full: rows([1], [2]) }, { padded: true }), 'INCOMPATIBLE'],
      [() => new Tokens({ full: rows([1], [2]), prompt: rows([1]) }), 'SHAPE_MISMATCH'],
      [() => new Tokens({ full: rows([1], [2]) }, { batchSize: [3] }), 'SHAPE_MISMATCH'],
      [() => new Tokens({ full: rows([1]) }, { batchSize: [] }), 'SHAPE_MISMATCH'],
      [
        () => new Tokens({ full: padded }, { padded: true, lengths: { full: Uint32Array.of(1, 2) } }),
        'SHAPE_MISMATCH',
      ],
      [() => new Tokens({ full: padded }, { padded: true }).toRagged(), 'INCOMPATIBLE'],
      [
        () => new Tokens({ full: padded }, { padded: true }).toPadded({ side: 'left', value: 0 }),
        'INCOMPATIBLE',
      ],
      [() => Tokens.stack([new Tokens({ full: padded }, { padded: true })]), 'INCOMPATIBLE'],
      [
        () => Tokens.stack([new Tokens({ full: rows([1]) }), new Tokens({ prompt: rows([1]) })]),
        'INCOMPATIBLE',
      ],
      [() => LogProbs.stack([]), 'EMPTY'],
      [() => new Tokens({ ful: padded } as never), 'UNKNOWN_NAME'],
      [() => new Tokens({ full: padded }, { pad: true } as never), 'UNKNOWN_NAME'],
      [() => new Tokens({ full: rows([-1]) }).toText({ tokenizer }), 'OUT_OF_RANGE'],
      [() => new Tokens({ full: rows([2 ** 33]) }).toText({ tokenizer }), 'OUT_OF_RANGE'],
    ]
    for (const [make, code] of wrong) expect(make, String(make)).toThrow(failing(code))
  })

  it('read padded tensors from elsewhere, once told how long the rows are', () => {
    const full = Tensor.from(BigInt64Array.of(0n, 1n, 2n, 3n), { shape: [2, 2] })
    const lengths = { full: Uint32Array.of(1, 2) }
    const tokens = new Tokens({ full }, { padded: true, side: 'left', lengths })
    expect((tokens.toRagged().full as Ragged).equals(rows([1], [2, 3]))).toBe(true)
    expect(tokens.at(0).toRagged().rows('full')[0]?.data).toEqual(BigInt64Array.of(1n))
  })

  it('give containers of their own class', () => {
    const ids = { full: rows([1, 2], [3]) }
    const logProbs = new LogProbs({ full: Ragged.fromRows([Tensor.from([-1, -2]), Tensor.from([-3])]) })
    const tokens = new Tokens(ids)
    const padded = tokens.toPadded({ side: 'left', value: 0 })
    for (const made of [padded, padded.toRagged(), tokens.toRagged(), tokens.at(1), Tokens.stack([tokens])])
      expect(made).toBeInstanceOf(Tokens)
    expect(logProbs.at(-1)).toBeInstanceOf(LogProbs)
    const spec = LogProbs.defaultSpec({ keys: ['full'] })
    expect([logProbs, tokens, spec.zero()].map(spec.contains)).toEqual([true, false, true])
    // @ts-expect-error One is of another dtype.
    const wrong: LogProbs = tokens
    expect(wrong).not.toBeInstanceOf(LogProbs)
  })

  it('hold nothing where nothing is given', () => {
    for (const empty of [new Tokens(), new LogProbs(), new Masks()])
      expect([empty.batchSize, empty.toTensorDict().keys()]).toEqual([[], []])
    expect([new Tokens().rows('full'), new Tokens().toList('full')]).toEqual([[], undefined])
  })
})
