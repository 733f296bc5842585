/** Text to token ids and back. */

export { CharTokenizer, type CharTokenizerJson, type CharTokenizerOptions } from './char-tokenizer.js'
export { DecodeStream } from './decode-stream.js'
export { HfTokenizer } from './hf-tokenizer.js'
export { NativeTokenizer } from './native-tokenizer.js'
export { type OffsetUnit, offsetsIn } from './offsets.js'
export {
  type PadBatchOptions,
  type PaddedBatch,
  type PaddingOptions,
  padBatch,
  type TruncationOptions,
} from './pad-batch.js'
export { TiktokenTokenizer, type TiktokenTokenizerOptions } from './tiktoken-tokenizer.js'
export type {
  DecodeOptions,
  EncodeBatchOptions,
  EncodeOptions,
  Encoding,
  EncodingBatch,
  NativeEncodeOptions,
  TokenizerLike,
} from './tokenizer-like.js'
export { type TrainByteBpeOptions, trainByteBpe } from './train-byte-bpe.js'
