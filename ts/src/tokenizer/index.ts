/** Text to token ids and back. */

export type { DecodeOptions, Encoding, Tokenizer } from './tokenizer.js'
