/** Text to token ids and back. */

export { CharTokenizer, type CharTokenizerJson, type CharTokenizerOptions } from './char-tokenizer.js'
export { NativeTokenizer } from './native-tokenizer.js'
export type { DecodeOptions, EncodeOptions, Encoding, TokenizerLike } from './tokenizer-like.js'
