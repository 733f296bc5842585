import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { CharTokenizer, DecodeStream, trainByteBpe } from '../../src/tokenizer/index.js'
import { golden } from './files.js'

const failing = (code: string) => expect.objectContaining({ name: 'FulmarError', code })

describe('DecodeStream', () => {
  it('never splits a character, whatever the ids', async () => {
    using tokenizer = await golden('qwen2')
    const ids = fc.array(fc.integer({ min: 0, max: 400 }), { maxLength: 60 })
    fc.assert(
      fc.property(ids, fc.boolean(), (list, skipSpecial) => {
        using stream = new DecodeStream(tokenizer, { skipSpecial })
        const pieces = list.map((id) => stream.push(id))
        expect(pieces.join('') + stream.finish()).toBe(
          tokenizer.decode(Uint32Array.from(list), { skipSpecial }),
        )
      }),
    )
  })

  it('gives a character once its last byte is there', () => {
    using tokenizer = trainByteBpe([''], { vocabSize: 256 })
    using stream = new DecodeStream(tokenizer)
    const bytes = [...Buffer.from('é🐈')].map((byte) =>
      tokenizer.encode(String.fromCharCode(byte)).ids.at(-1),
    )
    expect(bytes).toHaveLength(6)
    expect(Array.from(tokenizer.encode('é🐈').ids, (id) => stream.push(id))).toEqual([
      '',
      'é',
      '',
      '',
      '',
      '🐈',
    ])
  })

  it('gives what is unfinished as U+FFFD at its end, and starts again', () => {
    using tokenizer = trainByteBpe([''], { vocabSize: 256 })
    using stream = new DecodeStream(tokenizer)
    const [first = 0] = tokenizer.encode('é').ids
    expect([stream.push(first), stream.finish()]).toEqual(['', '\uFFFD'])
    expect(Array.from(tokenizer.encode('é').ids, (id) => stream.push(id))).toEqual(['', 'é'])
    expect(stream.finish()).toBe('')
  })

  it('leaves special tokens out where it is told to', () => {
    using tokenizer = new CharTokenizer({ alphabet: 'ab', specialTokens: ['<s>'] })
    using whole = new DecodeStream(tokenizer)
    using skipping = new DecodeStream(tokenizer, { skipSpecial: true })
    expect([0, 2, 1].map((id) => whole.push(id))).toEqual(['a', '<s>', 'b'])
    expect([0, 2, 1].map((id) => skipping.push(id))).toEqual(['a', '', 'b'])
  })

  it('is unchanged by an id that it refuses, and outlives its tokenizer', () => {
    const tokenizer = new CharTokenizer({ alphabet: 'ab', specialTokens: [] })
    using stream = new DecodeStream(tokenizer)
    tokenizer[Symbol.dispose]()
    expect(stream.push(0)).toBe('a')
    for (const id of [2, -1, 0.5, Number.NaN]) expect(() => stream.push(id)).toThrow(failing('OUT_OF_RANGE'))
    expect(stream.push(1)).toBe('b')
    expect(() => new DecodeStream(tokenizer)).toThrow(failing('CLOSED'))
    expect(() => new DecodeStream(new CharTokenizer(), { skip: true } as object)).toThrow(
      failing('UNKNOWN_NAME'),
    )
  })
})
