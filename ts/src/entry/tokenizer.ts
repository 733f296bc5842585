/** Tokenizers: text to token ids and back, streamed decoding, padding, training. */

export * from '../tokenizer/index.js'
