import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { CharTokenizer, type PadBatchOptions, padBatch } from '../../src/tokenizer/index.js'
import { golden } from './files.js'

const failing = (code: string) => expect.objectContaining({ name: 'FulmarError', code })

const TOKENIZER = new CharTokenizer({ alphabet: '_abc', specialTokens: [] })

/** Each row by itself, in the obvious way. */
function padSlowly(rows: number[][], { side, value, multipleOf = 1, length }: PadBatchOptions): number[][] {
  const longest = length ?? Math.max(0, ...rows.map((row) => row.length))
  const width = Math.ceil(longest / multipleOf) * multipleOf
  return rows.map((row) => {
    const padding = Array<number>(width - row.length).fill(value)
    return side === 'left' ? [...padding, ...row] : [...row, ...padding]
  })
}

describe('padBatch', () => {
  it('pads as each row by itself, on either side', () => {
    const texts = fc.array(fc.string({ unit: fc.constantFrom('a', 'b', 'c'), maxLength: 9 }))
    const options = fc.record(
      {
        side: fc.constantFrom('left' as const, 'right' as const),
        value: fc.constant(0),
        multipleOf: fc.integer({ min: 1, max: 5 }),
        length: fc.integer({ min: 9, max: 12 }),
      },
      { requiredKeys: ['side', 'value'] },
    )
    fc.assert(
      fc.property(texts, options, (given, how) => {
        const { ids, attentionMask, length } = padBatch(TOKENIZER.encodeBatch(given), how)
        const rows = padSlowly(
          given.map((text) => [...TOKENIZER.encode(text).ids]),
          how,
        )
        expect([...ids]).toEqual(rows.flat())
        expect(rows.every((row) => row.length === length)).toBe(true)
        expect([...attentionMask]).toEqual(rows.flat().map((id) => Number(id !== 0)))
      }),
    )
  })

  it('cuts batches at the end that is said, with special tokens counted in', async () => {
    const cut = (side?: 'left' | 'right') =>
      TOKENIZER.encodeBatch(['abc', '', 'c'], { truncation: { maxLength: 2, ...(side && { side }) } })
    expect([...cut().ids]).toEqual([1, 2, 3])
    expect(cut('left')).toEqual({
      ids: Uint32Array.of(2, 3, 3),
      offsets: Uint32Array.of(1, 2, 2, 3, 0, 1),
      rows: Uint32Array.of(0, 2, 2, 3),
    })
    using tokenizer = await golden('wordpiece')
    const around = (maxLength: number) =>
      tokenizer.encodeBatch(['the quick fox'], { addSpecialTokens: true, truncation: { maxLength } })
    expect(Array.from(around(2).ids, (id) => tokenizer.tokenOf(id))).toEqual(['[CLS]', '[SEP]'])
    expect(around(3).ids[1]).toBe(tokenizer.encode('the').ids[0])
    expect(() => around(1)).toThrow(failing('OUT_OF_RANGE'))
  })

  it('refuses rows that are too long, and options that are none', () => {
    const batch = TOKENIZER.encodeBatch(['abc'])
    const pad = (options: object) => () => padBatch(batch, { side: 'left', value: 0, ...options })
    expect(pad({ length: 3 })()).toMatchObject({ length: 3 })
    expect(pad({ length: 2 })).toThrow(failing('OUT_OF_RANGE'))
    for (const options of [
      { value: -1 },
      { value: 2 ** 32 },
      { multipleOf: 0 },
      { length: 1.5 },
      { length: 2 ** 32 },
    ]) {
      expect(pad(options)).toThrow(failing('OUT_OF_RANGE'))
    }
    expect(pad({ side: 'top' })).toThrow(failing('UNKNOWN_NAME'))
    expect(pad({ lenght: 4 })).toThrow(failing('UNKNOWN_NAME'))
    const cut = (truncation: object) => () => TOKENIZER.encodeBatch(['abc'], { truncation } as never)
    expect(cut({ maxLength: -1 })).toThrow(failing('OUT_OF_RANGE'))
    expect(cut({ maxLength: 1, side: 'top' })).toThrow(failing('UNKNOWN_NAME'))
    expect(cut({ max: 1 })).toThrow(failing('UNKNOWN_NAME'))
  })
})
