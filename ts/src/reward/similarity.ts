/** Similarity of texts by their longest common substrings. */

import { checkRewardText } from './text.js'

/** UTF-16 units of the second text of {@link similarity}; what a text is compared with is the caller's and short. */
export const SIMILARITY_LENGTH_MAX = 2048

/** A text more than this many times as long as what it is compared with is worth 0: it would be worth 1 / 2 at best. */
export const SIMILARITY_EXCESS = 3

/** Pairs of letters that are compared; then no more pieces are looked for. Texts of some 300 letters never come near. */
export const SIMILARITY_PAIRS_MAX = 33_554_432

/**
 * Computes the Ratcliff-Obershelp similarity, `2 m / (|text| + |wanted|)`: `m` counts the letters of the
 * longest common substring (the first of equal ones), and recursively of the longest left and right of it.
 * From 0 to 1; two empty texts have 1. Returns 0 for a text more than 3 times as long as `wanted`. Stops
 * after 33,554,432 comparisons with too low a result, to bound the time for adversarial texts.
 * @throws {FulmarError} `LIMIT_EXCEEDED` if `wanted` is longer than 2,048 or the text than 1,048,576 characters.
 *
 * @example
 * ```ts
 * import { similarity } from 'fulmar/reward'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(similarity('abcd', 'bcde'), 0.75)
 * assert.deepEqual([similarity('', ''), similarity('a', ''), similarity('x', 'x')], [1, 0, 1])
 * ```
 */
export function similarity(text: string, wanted: string): number {
  checkRewardText('text', text)
  checkRewardText('wanted', wanted, SIMILARITY_LENGTH_MAX)
  if (text.length + wanted.length === 0) return 1
  if (text.length > SIMILARITY_EXCESS * wanted.length) return 0
  return (2 * commonLetters(text, wanted)) / (text.length + wanted.length)
}

/** Ranges `[start, end)` of both texts. */
type Ranges = readonly [number, number, number, number]

function commonLetters(a: string, b: string): number {
  let [common, pairs] = [0, 0]
  const open: Ranges[] = [[0, a.length, 0, b.length]]
  for (let ranges = open.pop(); ranges !== undefined; ranges = open.pop()) {
    const [aStart, aEnd, bStart, bEnd] = ranges
    pairs += (aEnd - aStart) * (bEnd - bStart)
    if (pairs > SIMILARITY_PAIRS_MAX) return common
    const { inA, inB, length } = longestCommon(a, b, ranges)
    if (length === 0) continue
    common += length
    open.push([aStart, inA, bStart, inB], [inA + length, aEnd, inB + length, bEnd])
  }
  return common
}

/** The first of the longest common pieces, by its place in `a`, then in `b`. */
function longestCommon(a: string, b: string, [aStart, aEnd, bStart, bEnd]: Ranges) {
  let [inA, inB, length] = [aStart, bStart, 0]
  // Lengths of the common pieces that end at each letter of b and the letter of a before this one.
  let lengths = new Uint32Array(bEnd - bStart + 1)
  for (let i = aStart; i < aEnd; i++) {
    const next = new Uint32Array(lengths.length)
    for (let j = bStart; j < bEnd; j++) {
      if (a[i] !== b[j]) continue
      const size = (lengths[j - bStart] ?? 0) + 1
      next[j - bStart + 1] = size
      if (size > length) [inA, inB, length] = [i - size + 1, j - size + 1, size]
    }
    lengths = next
  }
  return { inA, inB, length }
}
