/** Small vocabularies, learned from text. */

import { call, checkKnownKeys } from '../core/index.js'
import { raw } from '../native/index.js'
import { HfTokenizer } from './hf-tokenizer.js'
import { checkText } from './native-tokenizer.js'

/** Options of {@link trainByteBpe}. */
export interface TrainByteBpeOptions {
  /** Vocabulary size: the 256 bytes, the special tokens, and the learned tokens. */
  readonly vocabSize: number
  /**
   * Names of special tokens, whose ids come last.
   * @default []
   */
  readonly specialTokens?: readonly string[]
}

/**
 * Learns a byte-level BPE vocabulary from `texts`, the most frequent pair first: for tests, examples and toy models.
 * The same texts give the same vocabulary everywhere; fewer tokens than asked for if nothing is left to merge.
 *
 * @throws {FulmarError} `OUT_OF_RANGE` if `vocabSize` does not hold the bytes and the special tokens; `MALFORMED` if a
 * special token is empty or occurs twice.
 *
 * @example
 * ```ts
 * import { trainByteBpe } from 'fulmar/tokenizer'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = trainByteBpe(['the cat', 'the hat'], { vocabSize: 261, specialTokens: ['<|end|>'] })
 * const { ids } = tokenizer.encode('the hat<|end|>', { addedTokens: true })
 * assert.deepEqual(Array.from(ids, (id) => tokenizer.tokenOf(id)), ['the', 'Ġ', 'h', 'at', '<|end|>'])
 * ```
 */
export function trainByteBpe(texts: readonly string[], options: TrainByteBpeOptions): HfTokenizer {
  return call(() => {
    checkKnownKeys('options', options, ['vocabSize', 'specialTokens'])
    const { vocabSize, specialTokens = [] } = options
    for (const text of [...texts, ...specialTokens]) checkText(text)
    return HfTokenizer.fromJson(raw.Tokenizer.trainByteBpe([...texts], vocabSize, [...specialTokens]))
  })
}
