import { describe, expect, it } from 'vitest'
import { NonTensorData, NonTensorStack, TensorDict } from '../../../src/tensor/index.js'
import { CharTokenizer } from '../../../src/tokenizer/index.js'
import { Tokenizer } from '../../../src/torchrl/index.js'
import { batchRows, wordpiece } from './batch-rows.js'

const failing = (code: string) => expect.objectContaining({ name: 'FulmarError', code })
const chars = new CharTokenizer({ alphabet: '_abc', specialTokens: [] })
const textOf = (text: string) => new NonTensorData(text)

describe('Tokenizer', () => {
  const batchOf = (texts: readonly string[]) =>
    TensorDict.from({ text: new NonTensorStack(texts) }, { batchSize: [texts.length] })
  const keys = { inKeys: ['text'], outKeys: ['ids'], inKeysInv: ['ids'], outKeysInv: ['said'] } as const

  it('gives what transformers gives, whatever is padded and cut', () => {
    const longest = batchRows.filter(({ kwargs }) => kwargs.padding === 'longest')
    expect(longest.length).toBeGreaterThanOrEqual(8)
    for (const row of longest) {
      const { max_length: maxLength = 0, pad_to_multiple_of: multipleOf = 1, truncation } = row.kwargs
      const transform = new Tokenizer({
        ...keys,
        tokenizer: wordpiece,
        padding: { side: row.padding_side, value: row.pad_token_id, multipleOf },
        truncation: truncation && { maxLength, side: row.truncation_side },
        addSpecialTokens: row.kwargs.add_special_tokens ?? true,
      })
      const dict = transform.forward(batchOf(row.texts))
      expect(Array.from(dict.tensor('ids').data, Number)).toEqual(row.input_ids.flat())
      expect(Array.from(dict.tensor('attention_mask').data, Number)).toEqual(row.attention_mask.flat())
    }
  })

  it('gives texts back, padded or ragged, batched or not', () => {
    const paddings = [false, { side: 'left', value: 0 }, { side: 'right', value: 0, multipleOf: 8 }] as const
    for (const padding of paddings) {
      const transform = new Tokenizer({ ...keys, tokenizer: chars, padding })
      const dict = transform.inverse(transform.forward(batchOf(['ab', '', 'cab'])))
      expect(dict.value('said')).toEqual(['ab', '', 'cab'])
      const alone = TensorDict.from({ text: textOf('ab') })
      expect(transform.inverse(transform.forward(alone)).value('said')).toBe('ab')
    }
  })

  it('gives every element the text that all share', () => {
    const dict = TensorDict.from({ text: textOf('ab') }, { batchSize: [2] })
    const ids = new Tokenizer({ ...keys, tokenizer: chars }).forward(dict).ragged('ids')
    expect([ids.numRows, [...ids.values.data].join()]).toEqual([2, '1,2,1,2'])
  })

  it('leaves special tokens out of texts unless told otherwise, and puts masks beside the ids', () => {
    const nested = {
      inKeys: [['a', 'text']],
      outKeys: [['a', 'ids']],
      inKeysInv: [['a', 'ids']],
      outKeysInv: ['said'],
    }
    const tokenizer = new CharTokenizer()
    const dict = TensorDict.from({}).set(['a', 'text'], textOf('x<|im_end|>'))
    const said = (options: object) => {
      const transform = new Tokenizer({ ...nested, tokenizer, ...options })
      const encoded = transform.forward(dict)
      return [encoded.has(['a', 'attention_mask']), transform.inverse(encoded).value('said')]
    }
    expect(said({})).toEqual([true, 'x'])
    expect(said({ skipSpecialTokens: false, returnAttentionMask: false })).toEqual([false, 'x<|im_end|>'])
    expect(said({ addedTokens: false })).toEqual([true, 'x<|im_end|>'])
    expect(dict.leafKeys()).toEqual([['a', 'text']])
  })

  it('says what is missing or no text', () => {
    const strict = new Tokenizer({ ...keys, tokenizer: chars, missingTolerance: false })
    const dict = batchOf(['a'])
    expect(new Tokenizer({ ...keys, tokenizer: chars }).inverse(dict).keys()).toEqual(['text'])
    const numbers = TensorDict.from({ text: new NonTensorStack([7]) }, { batchSize: [1] })
    const cases: [() => unknown, string][] = [
      [() => strict.inverse(dict), 'UNKNOWN_NAME'],
      [() => strict.forward(numbers), 'MALFORMED'],
      [
        () => strict.inverse(TensorDict.from({ ids: new NonTensorStack(['a']) }, { batchSize: [1] })),
        'SHAPE_MISMATCH',
      ],
      [() => new Tokenizer({ tokenizer: chars, inKeys: ['a'], outKeys: [] }), 'SHAPE_MISMATCH'],
      [() => new Tokenizer({ ...keys, tokenizer: chars, inkeys: [] } as never), 'UNKNOWN_NAME'],
      [
        () => new Tokenizer({ ...keys, tokenizer: chars, padding: { side: 'left' } }).forward(dict),
        'INCOMPATIBLE',
      ],
    ]
    for (const [make, code] of cases) expect(make, String(make)).toThrow(failing(code))
  })
})
