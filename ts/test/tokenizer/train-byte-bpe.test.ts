import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { HfTokenizer, trainByteBpe } from '../../src/tokenizer/index.js'

const failing = (code: string) => expect.objectContaining({ name: 'FulmarError', code })
const TEXTS = ['the cat sat on the mat', 'the hat of the cat', 'that']

describe('trainByteBpe', () => {
  it('learns the most frequent pair first', () => {
    using tokenizer = trainByteBpe(TEXTS, { vocabSize: 259 })
    const learned = [256, 257, 258].map((id) => tokenizer.tokenOf(id))
    expect(learned).toEqual(['at', 'th', 'the'])
    expect(Array.from(tokenizer.encode('that').ids, (id) => tokenizer.tokenOf(id))).toEqual(['th', 'at'])
  })

  it('brings any text back, seen or not', () => {
    using tokenizer = trainByteBpe(TEXTS, { vocabSize: 300, specialTokens: ['<|end|>'] })
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        expect(tokenizer.decode(tokenizer.encode(text).ids)).toBe(text)
      }),
    )
  })

  it('puts special tokens last, and gives fewer tokens where nothing is left to merge', () => {
    using tokenizer = trainByteBpe(['ab ab'], { vocabSize: 1000, specialTokens: ['<a>', '<b>'] })
    expect(tokenizer.vocabSize).toBe(259)
    expect([257, 258].map((id) => [tokenizer.tokenOf(id), tokenizer.isSpecial(id)])).toEqual([
      ['<a>', true],
      ['<b>', true],
    ])
  })

  it('gives the same vocabulary each time, as a tokenizer.json', () => {
    using one = trainByteBpe(TEXTS, { vocabSize: 280 })
    using two = trainByteBpe(TEXTS, { vocabSize: 280 })
    expect(one.toJSON()).toEqual(two.toJSON())
    using again = HfTokenizer.fromJson(one.toJSON())
    expect(again.encode('the mat')).toEqual(one.encode('the mat'))
  })

  it('refuses vocabularies that are too small, and special tokens that are empty or there twice', () => {
    expect(() => trainByteBpe([], { vocabSize: 255 })).toThrow(failing('OUT_OF_RANGE'))
    expect(() => trainByteBpe([], { vocabSize: 256, specialTokens: ['<s>'] })).toThrow(
      failing('OUT_OF_RANGE'),
    )
    expect(trainByteBpe([], { vocabSize: 256 }).vocabSize).toBe(256)
    for (const specialTokens of [[''], ['<s>', '<s>']]) {
      expect(() => trainByteBpe([], { vocabSize: 300, specialTokens })).toThrow(failing('MALFORMED'))
    }
    expect(() => trainByteBpe(['\uD83D'], { vocabSize: 256 })).toThrow(failing('UNKNOWN_TEXT'))
    expect(() => trainByteBpe([], { vocabSize: 256, seed: 1 } as never)).toThrow(failing('UNKNOWN_NAME'))
  })
})
