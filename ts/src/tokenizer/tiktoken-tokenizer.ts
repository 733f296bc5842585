/** Vocabularies in the `.tiktoken` format. */

import { call, checkKnownKeys, checkTypedArray } from '../core/index.js'
import { type RawTokenizer, raw } from '../native/index.js'
import { NativeTokenizer } from './native-tokenizer.js'

/** Options of {@link TiktokenTokenizer}. */
export interface TiktokenTokenizerOptions {
  /** The content of a `.tiktoken` file: lines of a token's bytes in base64, a space and its id. */
  readonly ranks: Uint8Array
  /** The regular expression that cuts text into pieces: one of those of r50k, cl100k, o200k, Llama 3 and Qwen. */
  readonly pattern: string
  /**
   * Special tokens and their ids.
   * @default {}
   */
  readonly specialTokens?: Readonly<Record<string, number>>
}

/**
 * A tokenizer whose ids are ranks; ids, and the bytes they decode to, are those of the `tiktoken` package. A token's
 * name spells its bytes as byte-level vocabularies do: `Ġ` is a space. Holds native memory: dispose it, or declare it
 * with `using`.
 *
 * @example
 * ```ts
 * import { TiktokenTokenizer } from 'fulmar/tokenizer'
 * import assert from 'node:assert/strict'
 *
 * const bytes = Array.from({ length: 256 }, (_, byte) => Buffer.of(byte))
 * const lines = [...bytes, Buffer.from('hi')].map((token, id) => `${token.toString('base64')} ${id}\n`)
 * using tokenizer = TiktokenTokenizer.fromTiktoken({
 *   ranks: new TextEncoder().encode(lines.join('')),
 *   pattern: String.raw`'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s`,
 *   specialTokens: { '<|end|>': 300 },
 * })
 * assert.deepEqual([...tokenizer.encode('hi<|end|>', { addedTokens: true }).ids], [256, 300])
 * assert.equal(tokenizer.tokenOf(299), undefined)
 * ```
 */
export class TiktokenTokenizer extends NativeTokenizer {
  private constructor(make: () => RawTokenizer) {
    super('TiktokenTokenizer', make)
  }

  /**
   * Loads the tokenizer of a file of ranks.
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown pattern or option;
   * `MALFORMED` if a line is not of the form, something occurs twice, or one of the 256 bytes is missing;
   * `LIMIT_EXCEEDED` past 2^22 ids.
   */
  static fromTiktoken(options: TiktokenTokenizerOptions): TiktokenTokenizer {
    return call(() => {
      checkKnownKeys('options', options, ['ranks', 'pattern', 'specialTokens'])
      const { ranks, pattern, specialTokens = {} } = options
      checkTypedArray('ranks', ranks, Uint8Array)
      const special = JSON.stringify(Object.entries(specialTokens))
      return new TiktokenTokenizer(() => raw.Tokenizer.tiktoken(ranks, String(pattern), special))
    })
  }

  /**
   * The tokenizer that {@link TiktokenTokenizer.toJSON} described, as an object or as text.
   * @throws {FulmarError} `MALFORMED` if `json` is not that; `INCOMPATIBLE` for another kind or version.
   */
  static fromJSON(json: unknown): TiktokenTokenizer {
    const text = call(() => (typeof json === 'string' ? json : String(JSON.stringify(json))))
    return new TiktokenTokenizer(() => raw.Tokenizer.tiktokenFromJson(text))
  }

  /** Returns the parts of this tokenizer as JSON, with `version` and `kind`. */
  toJSON(): unknown {
    return JSON.parse(this.withNative((native) => native.toJson()))
  }
}
