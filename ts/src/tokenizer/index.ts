/** Text to token ids and back. */

export { CharTokenizer, type CharTokenizerJson, type CharTokenizerOptions } from './char-tokenizer.js'
export type { DecodeOptions, Encoding, Tokenizer } from './tokenizer.js'
