/** Text to token ids and back. */

/** What {@link Tokenizer.encode} returns. */
export interface Encoding {
  /** Token ids, none of them special. Shape `[T]`. */
  readonly ids: Uint32Array
  /** Start and end of each token in bytes of the UTF-8 text. Shape `[T, 2]`, row-major. */
  readonly offsets: Uint32Array
}

/**
 * Text to token ids and back. Ids are `0..vocabSize - 1`. Text never becomes a special id: those are added by id.
 *
 * @example
 * ```ts
 * import { CharTokenizer, type Tokenizer } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * using chars = new CharTokenizer()
 * const tokenizer: Tokenizer = chars
 * assert.equal(tokenizer.decode(tokenizer.encode('[ANSWER] 7').ids), '[ANSWER] 7')
 * ```
 */
export interface Tokenizer {
  /** How many ids there are, special ones included. */
  readonly vocabSize: number
  /**
   * The ids of `text`, none of them special; empty text gives none.
   * @throws {FulmarError} `UNKNOWN_TEXT` with the character and its byte position if the vocabulary cannot express it,
   * or if `text` holds half of a surrogate pair; `LIMIT_EXCEEDED` past 64 MiB of UTF-8.
   */
  encode(text: string): Encoding
  /**
   * The text of `ids`. Special ids are written by name unless `skipSpecial`.
   * @throws {FulmarError} `OUT_OF_RANGE` if an id is not below `vocabSize`.
   */
  decode(ids: Uint32Array, options?: DecodeOptions): string
  /** The id of `token`, special or not. */
  idOf(token: string): number | undefined
  /** The name of `id`. */
  tokenOf(id: number): string | undefined
  /** Whether `id` is special; false for ids that do not exist. */
  isSpecial(id: number): boolean
}

/** How {@link Tokenizer.decode} writes special tokens. */
export interface DecodeOptions {
  /**
   * Whether special tokens are left out.
   * @default false
   */
  readonly skipSpecial?: boolean
}
