/** Places in a text, counted in bytes, code points or UTF-16 code units. */

import { call, checkTypedArray } from '../core/index.js'
import { raw } from '../native/index.js'
import { checkText } from './native-tokenizer.js'

/** Unit of offsets: bytes of UTF-8, code points as in Python, or UTF-16 code units as in JavaScript. */
export type OffsetUnit = 'bytes' | 'codePoints' | 'utf16'

/**
 * Counts `offsets`, which are places of `text` in bytes, in another unit. A new array of the same shape.
 *
 * @throws {FulmarError} `OUT_OF_RANGE` if an offset is past the end of `text` or inside a character; `UNKNOWN_NAME`
 * for another unit.
 *
 * @example
 * ```ts
 * import { CharTokenizer, offsetsIn } from 'fulmar/tokenizer'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer({ alphabet: 'a🐈é' })
 * const text = '🐈é'
 * const { offsets } = tokenizer.encode(text)
 * assert.deepEqual([...offsets], [0, 4, 4, 6])
 * assert.deepEqual([...offsetsIn(text, offsets, 'codePoints')], [0, 1, 1, 2])
 * const [start, end] = offsetsIn(text, offsets, 'utf16')
 * assert.equal(text.slice(start, end), '🐈')
 * ```
 */
export function offsetsIn(text: string, offsets: Uint32Array, unit: OffsetUnit): Uint32Array {
  checkText(text)
  checkTypedArray('offsets', offsets, Uint32Array)
  return call(() => raw.Tokenizer.offsetsIn(text, offsets, unit))
}
