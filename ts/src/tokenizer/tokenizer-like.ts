/** Text to token ids and back. */

import type { TruncationOptions } from './pad-batch.js'

/** Result of {@link TokenizerLike.encode}. */
export interface Encoding {
  /** Token ids. Shape `[T]`. */
  readonly ids: Uint32Array
  /** Start and end of each token in bytes of the UTF-8 text. Shape `[T, 2]`, row-major. */
  readonly offsets: Uint32Array
}

/** Encodings of many texts, one behind the other: text `i` has the tokens `rows[i]` up to `rows[i + 1]`. */
export interface EncodingBatch extends Encoding {
  /** Start of each text in `ids`, then their number. Shape `[N + 1]`. */
  readonly rows: Uint32Array
}

/**
 * Text to token ids and back. Ids are below `vocabSize`; some of those may have no token. The name of an added token such as `<|im_end|>` inside a
 * text stays text, unless {@link EncodeOptions.addedTokens} asks for its id.
 *
 * @example
 * ```ts
 * import { CharTokenizer, type TokenizerLike } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * using chars = new CharTokenizer()
 * const tokenizer: TokenizerLike = chars
 * assert.equal(tokenizer.decode(tokenizer.encode('[ANSWER] 7').ids), '[ANSWER] 7')
 * ```
 */
export interface TokenizerLike {
  /** The largest id + 1, special ones included; more than there are tokens if ids have gaps. */
  readonly vocabSize: number
  /**
   * The ids of `text`; empty text gives none.
   * @throws {FulmarError} `UNKNOWN_TEXT` with the character and its byte position if the vocabulary cannot express it,
   * or if `text` holds half of a surrogate pair; `LIMIT_EXCEEDED` past 64 MiB of UTF-8.
   */
  encode(text: string, options?: EncodeOptions): Encoding
  /**
   * The text of `ids`. Special ids are written by name unless `skipSpecial`; ids without a token have no text.
   * @throws {FulmarError} `OUT_OF_RANGE` if an id is not below `vocabSize`.
   */
  decode(ids: Uint32Array, options?: DecodeOptions): string
  /** The id of `token`, special or not. */
  idOf(token: string): number | undefined
  /** The name of `id`; `undefined` if it has no token. */
  tokenOf(id: number): string | undefined
  /** Returns true if `id` is special; false for ids that do not exist. */
  isSpecial(id: number): boolean
}

/** Options of {@link TokenizerLike.encode}. */
export interface EncodeOptions {
  /**
   * If true, names of added tokens inside the text become their ids. For text of a template, never for text
   * of a user or a model.
   * @default false
   */
  readonly addedTokens?: boolean
}

/** Options of {@link NativeTokenizer.encode}. */
export interface NativeEncodeOptions extends EncodeOptions {
  /**
   * If true, adds the special tokens of the tokenizer's file around a text, such as `[CLS]` and `[SEP]`, with
   * offsets 0. Not for text of a chat template, which writes them itself.
   * @default false
   */
  readonly addSpecialTokens?: boolean
}

/** Options of {@link NativeTokenizer.encodeBatch}. */
export interface EncodeBatchOptions extends NativeEncodeOptions {
  /**
   * Truncation of texts, which counts their special tokens.
   * @default false
   */
  readonly truncation?: false | TruncationOptions
}

/** Options of {@link TokenizerLike.decode}. */
export interface DecodeOptions {
  /**
   * If true, special tokens are left out.
   * @default false
   */
  readonly skipSpecial?: boolean
}
