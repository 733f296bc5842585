import fc from 'fast-check'
import { readRleBitPackedHybrid } from 'hyparquet/src/encoding.js'
import { describe, expect, it } from 'vitest'
import { checkLevels, checkRuns, checkValues } from '../../src/table/parquet-runs.js'

/** A whole number, seven bits a byte. */
function varInt(value: number): number[] {
  return value < 128 ? [value] : [(value % 128) + 128, ...varInt(Math.floor(value / 128))]
}

/** A run of one value, and a run of packed bits in groups of eight values. */
const repeated = (count: number, value: number, bits: number) => [
  ...varInt(count * 2),
  ...Array.from({ length: Math.ceil(bits / 8) }, (_, at) => (value >> (8 * at)) & 255),
]
const packed = (groups: number, bits: number, fill = 0) => [
  ...varInt(groups * 2 + 1),
  ...Array(groups * bits).fill(fill),
]

/** Levels behind their length. */
const lengthy = (bytes: readonly number[]) => [bytes.length, 0, 0, 0, ...bytes]

const levels = (bytes: readonly number[], numValues: number, bits: number) =>
  checkLevels(Uint8Array.from(bytes), numValues, bits)

const BOMB = [254, 255, 255, 255, 15]

describe('runs of a page', () => {
  it('of as many values as the page has are followed as the reader follows them', () => {
    const run = fc.oneof(
      fc.record({ isPacked: fc.constant(true), count: fc.integer({ min: 1, max: 9 }) }),
      fc.record({ isPacked: fc.constant(false), count: fc.integer({ min: 1, max: 500 }) }),
    )
    fc.assert(
      fc.property(
        fc.array(run, { minLength: 1, maxLength: 9 }),
        fc.integer({ min: 1, max: 17 }),
        (runs, bits) => {
          const bytes = runs.flatMap(({ isPacked, count }) =>
            isPacked ? packed(count, bits, 5) : repeated(count, 1, bits),
          )
          const numValues = runs.reduce((sum, { isPacked, count }) => sum + (isPacked ? 8 * count : count), 0)
          levels(bytes, numValues, bits)
          expect(() => levels(bytes, numValues + 1, bits)).toThrow(/they end before/)
          const output: number[] = new Array(numValues)
          const view = new DataView(Uint8Array.from(bytes).buffer)
          readRleBitPackedHybrid({ view, offset: 0 }, bits, output, bytes.length)
          expect(output).toHaveLength(numValues)
        },
      ),
    )
  })

  it('of more values than the page has are refused, before they fill memory', () => {
    expect(() => levels([...BOMB, 1], 4, 1)).toThrow('at most the 4 values of a page: one has 2147483647')
    expect(() => levels(repeated(5, 1, 1), 4, 1)).toThrow(/one has 5/)
    levels(packed(1, 1), 4, 1) // the last group is always of eight
    const dictionary = (bytes: readonly number[]) =>
      checkValues(Uint8Array.from([3, ...bytes]), 4, 'dictionary')
    expect(() => dictionary([...BOMB, 1])).toThrow(/at most the 4 values/)
    dictionary(repeated(3, 1, 3)) // one of the four is null
    expect(() => checkValues(Uint8Array.from([6, 0, 0, 0, ...BOMB, 1]), 4, 'truths')).toThrow(
      /at most the 4 values/,
    )
    checkValues(Uint8Array.from(BOMB), 4, 'plain')
    checkValues(Uint8Array.from([0, ...BOMB]), 4, 'dictionary') // no bits: all positions are 0
  })

  it('are found behind the lengths of both levels', () => {
    const both = [...lengthy(repeated(4, 0, 1)), ...lengthy(repeated(4, 3, 2))]
    const check = (page: readonly number[]) =>
      checkRuns(Uint8Array.from(page), { numValues: 4, levelBits: [1, 2], values: 'dictionary' })
    check([...both, 2, ...repeated(4, 1, 2)])
    expect(() => check([...both, 2, ...BOMB, 1])).toThrow(/one has 2147483647/)
    expect(() => check([...lengthy(repeated(4, 0, 1)), ...lengthy([...BOMB, 1])])).toThrow(/one has/)
    expect(() => check([200, 0, 0, 0, 1])).toThrow(/end in a page of 5 bytes: they end at 204/)
    expect(() => check([1, 0])).toThrow(/end in a page of 2 bytes/)
    expect(() => check([255, 255, 255, 255, 1])).toThrow(/end at 4294967299/)
  })
})
