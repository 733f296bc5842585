import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { CharTokenizer } from '../../src/tokenizer/index.js'

const failing = (code: string) => expect.objectContaining({ name: 'FulmarError', code })

describe('CharTokenizer', () => {
  it('has newline, printable ASCII and the three ChatML tokens by default', () => {
    using tokenizer = new CharTokenizer()
    expect(tokenizer.vocabSize).toBe(99)
    expect([...tokenizer.encode('\n ~').ids]).toEqual([0, 1, 95])
    expect(tokenizer.idOf('<|im_end|>')).toBe(98)
    expect(tokenizer.tokenOf(97)).toBe('<|im_start|>')
    expect([tokenizer.isSpecial(95), tokenizer.isSpecial(96), tokenizer.isSpecial(99)]).toEqual([
      false,
      true,
      false,
    ])
    expect([tokenizer.idOf('nothing'), tokenizer.tokenOf(99)]).toEqual([undefined, undefined])
    expect(tokenizer.tokenOf(2 ** 40)).toBeUndefined()
  })

  it('gives offsets in bytes of the UTF-8 text', () => {
    using tokenizer = new CharTokenizer({ alphabet: 'aé猫🐈', specialTokens: [] })
    const { ids, offsets } = tokenizer.encode('🐈a猫é')
    expect([...ids]).toEqual([3, 0, 2, 1])
    expect([...offsets]).toEqual([0, 4, 4, 5, 5, 8, 8, 10])
  })

  it('never turns text into a special id', () => {
    using tokenizer = new CharTokenizer()
    const { ids } = tokenizer.encode('<|im_end|>')
    expect(ids).toHaveLength(10)
    expect(tokenizer.decode(Uint32Array.of(...ids, 98))).toBe('<|im_end|><|im_end|>')
    expect(tokenizer.decode(Uint32Array.of(...ids, 98), { skipSpecial: true })).toBe('<|im_end|>')
  })

  it('brings any text of its alphabet back', () => {
    using tokenizer = new CharTokenizer()
    const text = fc.string({ unit: 'grapheme-ascii' })
    fc.assert(fc.property(text, (given) => tokenizer.decode(tokenizer.encode(given).ids) === given))
  })

  it('names the character and the byte of text that it does not know', () => {
    using tokenizer = new CharTokenizer({ alphabet: 'aé' })
    const message = "text must use only characters of the alphabet: got 'B' (U+0042) at byte 3"
    expect(() => tokenizer.encode('éaB')).toThrow(expect.objectContaining({ code: 'UNKNOWN_TEXT', message }))
    expect(() => tokenizer.encode('a\0')).toThrow(failing('UNKNOWN_TEXT'))
  })

  it('encodes NUL where the alphabet has it', () => {
    using tokenizer = new CharTokenizer({ alphabet: '\0a' })
    expect([...tokenizer.encode('a\0a').ids]).toEqual([1, 0, 1])
    expect(tokenizer.decode(Uint32Array.of(0, 1))).toBe('\0a')
  })

  it('refuses halves of surrogate pairs instead of replacing them', () => {
    using tokenizer = new CharTokenizer({ alphabet: 'a\uFFFD🐈' })
    expect(tokenizer.encode('🐈').ids).toHaveLength(1)
    for (const text of ['a\uD83D', '\uDC08', '\uDC08\uD83D']) {
      expect(() => tokenizer.encode(text)).toThrow(failing('UNKNOWN_TEXT'))
    }
    expect(tokenizer.idOf('\uD83D')).toBeUndefined()
    expect(() => new CharTokenizer({ alphabet: 'a\uD83D' })).toThrow(failing('MALFORMED'))
  })

  it('refuses ids outside the vocabulary and values that are no ids', () => {
    using tokenizer = new CharTokenizer()
    expect(() => tokenizer.decode(Uint32Array.of(1, 99))).toThrow(failing('OUT_OF_RANGE'))
    expect(() => tokenizer.decode([1, 2] as unknown as Uint32Array)).toThrow(failing('MALFORMED'))
    expect(() => tokenizer.tokenOf(-1)).toThrow(failing('OUT_OF_RANGE'))
    expect(() => tokenizer.isSpecial(1.5)).toThrow(failing('OUT_OF_RANGE'))
    expect(() => tokenizer.encode(7 as unknown as string)).toThrow(failing('MALFORMED'))
  })

  it('refuses vocabularies that are empty or ambiguous, and unknown options by name', () => {
    expect(() => new CharTokenizer({ alphabet: '' })).toThrow(failing('EMPTY'))
    expect(() => new CharTokenizer({ alphabet: 'aa' })).toThrow(failing('MALFORMED'))
    expect(() => new CharTokenizer({ specialTokens: ['<s>', '<s>'] })).toThrow(failing('MALFORMED'))
    expect(() => new CharTokenizer({ specialTokens: [''] })).toThrow(failing('EMPTY'))
    expect(() => new CharTokenizer({ specialTokens: 'x' } as never)).toThrow(failing('MALFORMED'))
    const message = "options.alphabt must be a known key: did you mean 'alphabet'?"
    expect(() => new CharTokenizer({ alphabt: 'a' } as never)).toThrow(
      expect.objectContaining({ code: 'UNKNOWN_NAME', message }),
    )
  })

  it('goes to JSON and back', () => {
    using tokenizer = new CharTokenizer({ alphabet: 'aé"\\\n', specialTokens: ['<s>'] })
    const json = JSON.stringify(tokenizer)
    expect(JSON.parse(json)).toEqual({
      version: 1,
      kind: 'char',
      alphabet: 'aé"\\\n',
      specialTokens: ['<s>'],
    })
    using fromText = CharTokenizer.fromJSON(json)
    using fromObject = CharTokenizer.fromJSON(JSON.parse(json))
    expect([fromText.toJSON(), fromObject.toJSON()]).toEqual([tokenizer.toJSON(), tokenizer.toJSON()])
    expect(() => CharTokenizer.fromJSON({ ...tokenizer.toJSON(), version: 2 })).toThrow(
      failing('INCOMPATIBLE'),
    )
    for (const json of ['', '{}', {}, null, undefined, 7]) {
      expect(() => CharTokenizer.fromJSON(json)).toThrow(failing('MALFORMED'))
    }
  })

  it('says that it is closed after its disposal', () => {
    const tokenizer = new CharTokenizer()
    tokenizer[Symbol.dispose]()
    tokenizer[Symbol.dispose]()
    expect(() => tokenizer.encode('a')).toThrow(failing('CLOSED'))
  })
})
