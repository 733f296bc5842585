/** Tokenizers of the golden folders. */

import { HfTokenizer } from '../../src/tokenizer/index.js'

/** Every folder of `tests/golden/tokenizer` with a `tokenizer.json`. */
export const GOLDEN_NAMES = [
  'byte_fallback',
  'prefix_space',
  'qwen2',
  'smollm2',
  'split_regex',
  'unigram',
  'word_level',
  'wordpiece',
] as const

/** The folder of a golden tokenizer. */
export function goldenFolder(name: string): string {
  return new URL(`../../../tests/golden/tokenizer/${name}`, import.meta.url).pathname
}

/** A golden tokenizer. */
export function golden(name: (typeof GOLDEN_NAMES)[number]): Promise<HfTokenizer> {
  return HfTokenizer.fromFolder(goldenFolder(name))
}
