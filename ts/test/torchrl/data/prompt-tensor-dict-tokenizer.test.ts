import { describe, expect, it } from 'vitest'
import { CharTokenizer } from '../../../src/tokenizer/index.js'
import {
  PromptTensorDictTokenizer,
  type PromptTensorDictTokenizerOptions,
} from '../../../src/torchrl/index.js'
import { failing } from '../envs/chats.js'

const tokenizer = new CharTokenizer({ alphabet: '_abc', specialTokens: [] })
const map = (options: Partial<PromptTensorDictTokenizerOptions> = {}) =>
  new PromptTensorDictTokenizer({ tokenizer, maxLength: 4, value: 0, endId: 0, ...options })

describe('PromptTensorDictTokenizer', () => {
  it('finds the end of each prompt, also of one that is cut off', () => {
    const dict = map().apply({ prompt: ['a', 'abcabc', 'abc'], label: ['b', 'c', ''] })
    expect(dict.batchSize).toEqual([])
    expect([...dict.tensor('prompt_rindex').data]).toEqual([0n, 3n, 2n])
    expect([...dict.tensor('input_ids').data].slice(0, 4)).toEqual([1n, 2n, 0n, 0n])
    expect([...dict.tensor('valid_sample').data]).toEqual([1, 0, 1])
  })

  it('keeps long rows where nothing may be cut', () => {
    const dict = map({ truncation: false }).apply({ prompt: ['a', 'abcabc'], label: ['b', '_'] })
    expect([...dict.ragged('input_ids').offsets]).toEqual([0, 4, 11])
    expect([...dict.tensor('valid_sample').data]).toEqual([1, 1])
    expect([...dict.tensor('prompt_rindex').data]).toEqual([0n, 5n])
  })

  it('reads another column', () => {
    const dict = map({ key: 'question' }).apply({ question: ['ab'], prompt: ['c'], label: ['c'] })
    expect([...dict.tensor('input_ids').data]).toEqual([1n, 2n, 3n, 0n])
  })

  it('says what is wrong', () => {
    const cases: [() => unknown, string, RegExp][] = [
      [() => new PromptTensorDictTokenizer({ tokenizer, maxLength: 4, endId: 0 }), 'INCOMPATIBLE', /padding/],
      [() => new PromptTensorDictTokenizer({ tokenizer, maxLength: 4, value: 0 }), 'INCOMPATIBLE', /endId/],
      [() => map({ maxLength: 0 }), 'OUT_OF_RANGE', /maxLength/],
      [() => map({ side: 'left' } as never), 'UNKNOWN_NAME', /side/],
      [() => map().apply({ prompt: 'a', label: 'b' }), 'MALFORMED', /prompt must be a list/],
      [() => map().apply({ prompt: ['a'] }), 'MALFORMED', /label/],
      [() => map().apply({ prompt: ['a', 'b'], label: ['c'] }), 'SHAPE_MISMATCH', /label .*2.*: got 1/],
      [() => map().apply({ prompt: ['a', ''], label: ['c', 'c'] }), 'EMPTY', /prompt\[1\]/],
    ]
    for (const [make, code, message] of cases) expect(make, String(make)).toThrow(failing(code, message))
  })
})
