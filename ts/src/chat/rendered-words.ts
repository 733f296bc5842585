/** Rendered tokens as the core gives them: one array, of which the columns are views. */

import type { Rendered } from './renderer.js'

/** Words before the columns: how many tokens there are, and how many of a completion stay. */
const NUM_HEADER_WORDS = 2

/** Reads the `words` of `Rendered::to_words` in the core, which begin at `at`. The columns share its memory. */
export function fromWords(
  words: Uint32Array,
  at = 0,
): { readonly rendered: Rendered; readonly numKept: number } {
  const [numTokens = 0, numKept = 0] = [words[at], words[at + 1]]
  const { buffer } = words
  let offset = words.byteOffset + (at + NUM_HEADER_WORDS) * words.BYTES_PER_ELEMENT
  const next = (bytesPerToken: number) => {
    const start = offset
    offset += bytesPerToken * numTokens
    return start
  }
  const rendered = {
    ids: new Uint32Array(buffer, next(4), numTokens),
    messageIndices: new Int32Array(buffer, next(4), numTokens),
    sampledMask: new Uint8Array(buffer, next(1), numTokens),
    isContent: new Uint8Array(buffer, next(1), numTokens),
    origins: new Uint8Array(buffer, next(1), numTokens),
  }
  return { rendered, numKept }
}
