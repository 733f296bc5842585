import { describe, expect, it } from 'vitest'
import { Ragged, Tensor, TensorDict } from '../../../src/tensor/index.js'
import { CharTokenizer } from '../../../src/tokenizer/index.js'
import { LLMData, LLMInput, LLMOutput, LogProbs, Masks, Text, Tokens } from '../../../src/torchrl/index.js'
import { failing } from '../envs/chats.js'

const rows = (...values: number[][]) =>
  Ragged.fromRows(values.map((row) => Tensor.from(BigInt64Array.from(row, BigInt))))
const floats = (...values: number[][]) => Ragged.fromRows(values.map((row) => Tensor.from(row)))
const marks = (...values: number[][]) =>
  Ragged.fromRows(values.map((row) => Tensor.from(Uint8Array.from(row), { dtype: 'bool' })))

const parts = {
  text: new Text({ prompt: ['ab', 'c'], response: ['d', 'ef'] }),
  tokens: new Tokens({ prompt: rows([1, 2], [3]), response: rows([4], [5, 6]) }),
  masks: new Masks({ allAttentionMask: marks([1, 1], [1]) }),
  logProbs: new LogProbs({ response: floats([-1], [-2, -3]) }),
  logits: Tensor.zeros('f32', [2, 2, 7]),
}

describe('LLMData', () => {
  it('has the fields of its containers, and gives the containers again', () => {
    const data = LLMData.from(parts)
    expect(data.batchSize).toEqual([2])
    expect([data.text, data.textResponse]).toEqual([
      ['ab', 'c'],
      ['d', 'ef'],
    ])
    expect(data.toText().full).toEqual(['abd', 'cef'])
    expect(data.tokens).toBe(parts.tokens.prompt)
    expect(data.toTokens().response).toBe(parts.tokens.response)
    expect(data.toMasks().allAttentionMask).toBe(parts.masks.allAttentionMask)
    expect(data.toLogProbs().response).toBe(parts.logProbs.response)
    expect(data.logits?.shape).toEqual([2, 2, 7])
  })

  it('goes into a dictionary and comes back', () => {
    const dict = LLMData.from(parts).toTensorDict()
    expect(dict.keys().sort()).toEqual(
      [
        ...['attention_mask', 'log_probs', 'logits', 'text', 'text_response'],
        ...['tokens', 'tokens_response'],
      ].sort(),
    )
    expect(LLMData.fromTensorDict(dict).toTensorDict().equals(dict)).toBe(true)
  })

  it('is a prompt and an answer', () => {
    const data = LLMData.from(parts)
    const [input, output] = [data.toInput(), data.toOutput()]
    expect(input.toTensorDict().keys().sort()).toEqual(['attention_mask', 'text', 'tokens'])
    expect(output.textResponse).toEqual(['d', 'ef'])
    const both = { ...LLMInput.from({ text: parts.text, tokens: parts.tokens, masks: parts.masks }) }
    expect(both.batchSize).toEqual(input.batchSize)
    expect(LLMOutput.fromTensorDict(output.toTensorDict()).toLogProbs().response).toBeDefined()
    expect(LLMInput.fromTensorDict(input.toTensorDict()).text).toEqual(['ab', 'c'])
    expect(
      LLMOutput.from({ tokens: parts.tokens, logProbs: parts.logProbs }).toText().response,
    ).toBeUndefined()
  })

  it('may be padded, or without a batch', () => {
    const ids = Tensor.from(BigInt64Array.of(1n, 2n, 3n, 0n), { shape: [2, 2] })
    const mask = Tensor.from(Uint8Array.of(1, 1, 1, 0), { dtype: 'bool', shape: [2, 2] })
    const input = new LLMInput({ tokens: ids, attentionMask: mask }, { padded: true })
    expect([input.batchSize, input.toTokens().padded]).toEqual([[2], true])
    using tokenizer = new CharTokenizer({ alphabet: '_abc', specialTokens: [] })
    const one = LLMInput.from({ tokens: new Text({ prompt: 'ab' }).toTokens({ tokenizer }) })
    expect([one.batchSize, one.toTokens().toText({ tokenizer }).prompt]).toEqual([[], 'ab'])
    expect(new LLMData().batchSize).toEqual([])
  })

  it('says what is wrong', () => {
    const cases: [() => unknown, string, RegExp][] = [
      [() => new LLMInput({ textResponse: 'a' } as never), 'UNKNOWN_NAME', /textResponse/],
      [() => new LLMOutput({ attentionMask: marks([1]) } as never), 'UNKNOWN_NAME', /attentionMask/],
      [() => LLMInput.from({ logProbs: parts.logProbs } as never), 'UNKNOWN_NAME', /logProbs/],
      [
        () => new LLMData({ text: ['a'], tokens: rows([1], [2]) }),
        'SHAPE_MISMATCH',
        /text .*\[2\]: got \[1\]/,
      ],
      [() => new LLMInput({ tokens: floats([1]) as never }), 'INCOMPATIBLE', /i64/],
      [
        () => new LLMInput({ tokens: rows([1, 2]), attentionMask: marks([1]) }),
        'SHAPE_MISMATCH',
        /attentionMask must have 2 values .* row 0: got 1/,
      ],
      [
        () => new LLMOutput({ tokensResponse: rows([1]), logProbs: floats([1, 2]) }),
        'SHAPE_MISMATCH',
        /logProbs/,
      ],
      [() => new LLMOutput({ logits: Tensor.zeros('f32', [2]) }), 'INCOMPATIBLE', /\[...batch, R, V\]/],
      [
        () => LLMInput.fromTensorDict(TensorDict.from({ loss: Tensor.from([1]) })),
        'UNKNOWN_NAME',
        /got loss/,
      ],
    ]
    for (const [make, code, message] of cases) expect(make, String(make)).toThrow(failing(code, message))
  })
})
