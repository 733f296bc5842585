import { describe, expect, it } from 'vitest'
import { CharTokenizer } from '../../../src/tokenizer/index.js'
import { TensorDictTokenizer, type TensorDictTokenizerOptions } from '../../../src/torchrl/index.js'
import { batchRows, wordpiece } from './batch-rows.js'

const failing = (code: string) => expect.objectContaining({ name: 'FulmarError', code })
const exact = batchRows.filter(({ kwargs }) => kwargs.padding === 'max_length' && !kwargs.pad_to_multiple_of)

const chars = new CharTokenizer({ alphabet: '_abc', specialTokens: [] })
const map = (options: Partial<TensorDictTokenizerOptions> = {}) =>
  new TensorDictTokenizer({
    tokenizer: chars,
    maxLength: 3,
    side: 'right',
    truncation: 'right',
    value: 0,
    ...options,
  })

describe('TensorDictTokenizer', () => {
  it('gives what transformers gives, on every side', () => {
    expect(exact.length).toBeGreaterThanOrEqual(8)
    for (const row of exact) {
      const { max_length: maxLength = 0, add_special_tokens: addSpecialTokens = true } = row.kwargs
      const { texts, padding_side: side, truncation_side: truncation, pad_token_id: value } = row
      const options = { tokenizer: wordpiece, maxLength, side, truncation, value, addSpecialTokens }
      const { input_ids, attention_mask } = row
      expect(new TensorDictTokenizer(options).lists({ text: texts })).toEqual({ input_ids, attention_mask })
    }
  })

  it('gives one row for a text and a batch for a list', () => {
    const [one, many] = [map().apply({ text: 'ab' }), map().apply({ text: ['ab', 'cccc'] })]
    expect([one.batchSize, one.tensor('input_ids').shape, one.tensor('input_ids').dtype]).toEqual([
      [],
      [3],
      'i64',
    ])
    expect([many.batchSize, many.tensor('attention_mask').shape, many.keys()]).toEqual([
      [2],
      [2, 3],
      ['input_ids', 'attention_mask'],
    ])
    expect(map({ key: 'prompt' }).lists({ prompt: 'a', text: 'b' }).input_ids).toEqual([1, 0, 0])
  })

  it('keeps rows that are too long where nothing may be cut', () => {
    const whole = map({ truncation: false, side: 'left' })
    const dict = whole.apply({ text: ['a', 'bcbc'] })
    expect([...dict.ragged('input_ids').offsets]).toEqual([0, 3, 7])
    expect(whole.lists({ text: ['a', 'bcbc'] })).toEqual({
      input_ids: [
        [0, 0, 1],
        [2, 3, 2, 3],
      ],
      attention_mask: [
        [0, 0, 1],
        [1, 1, 1, 1],
      ],
    })
    expect(whole.lists({ text: 'bcbc' }).input_ids).toEqual([2, 3, 2, 3])
    expect(map({ padding: false }).lists({ text: ['a', 'bcbc'] }).input_ids).toEqual([[1], [2, 3, 2]])
  })

  it('says what is missing', () => {
    const cases: [() => unknown, string][] = [
      [
        () => new TensorDictTokenizer({ tokenizer: chars, maxLength: 3, side: 'right', truncation: false }),
        'INCOMPATIBLE',
      ],
      [() => map({ maxLength: 0 }), 'OUT_OF_RANGE'],
      [() => map({ side: 'up' as 'left' }), 'UNKNOWN_NAME'],
      [() => map({ truncation: true as never }), 'UNKNOWN_NAME'],
      [() => map({ max_length: 3 } as never), 'UNKNOWN_NAME'],
      [() => map().apply({ prompt: 'a' }), 'MALFORMED'],
      [() => map().apply({ text: [] }), 'MALFORMED'],
      [() => map().apply({ text: ['a', 7] }), 'MALFORMED'],
      [() => map().apply({ text: 'x' }), 'UNKNOWN_TEXT'],
    ]
    for (const [make, code] of cases) expect(make, String(make)).toThrow(failing(code))
  })
})
