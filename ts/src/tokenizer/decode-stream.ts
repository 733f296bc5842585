/** Text as tokens arrive. */

import { checkKnownKeys, Handle } from '../core/index.js'
import { type RawDecodeStream, raw } from '../native/index.js'
import type { NativeTokenizer } from './native-tokenizer.js'
import type { DecodeOptions } from './tokenizer-like.js'

/**
 * Decodes one token at a time and never splits a character. The pieces, joined, equal the result of
 * {@link NativeTokenizer.decode} for all ids. They are those of Hugging Face's `DecodeStream`, with an empty piece for its
 * null. Memory does not grow with the number of tokens. Holds native memory: dispose it, or declare it
 * with `using`.
 *
 * @example
 * ```ts
 * import { DecodeStream, trainByteBpe } from 'fulmar/tokenizer'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = trainByteBpe(['two words'], { vocabSize: 256 })
 * using stream = new DecodeStream(tokenizer)
 * const pieces = Array.from(tokenizer.encode('é!').ids, (id) => stream.push(id))
 * assert.deepEqual(pieces, ['', 'é', '!'])
 * assert.equal(stream.finish(), '')
 * ```
 */
export class DecodeStream {
  readonly #native: Handle<RawDecodeStream>

  /**
   * An empty stream over `tokenizer`, which may be disposed before the stream is.
   * @throws {FulmarError} `CLOSED` if `tokenizer` is disposed; `UNKNOWN_NAME` for an unknown option.
   */
  constructor(tokenizer: NativeTokenizer, options: DecodeOptions = {}) {
    checkKnownKeys('options', options, ['skipSpecial'])
    const { skipSpecial = false } = options
    this.#native = new Handle('DecodeStream', () =>
      tokenizer.withNative((native) => new raw.DecodeStream(native, skipSpecial)),
    )
  }

  /**
   * The text that `id` completes; empty while a character is unfinished.
   * @throws {FulmarError} `OUT_OF_RANGE` if `id` is not in the vocabulary; `INCOMPATIBLE` if it changes text that was
   * given, as some decoders do where words are joined. The stream is unchanged then.
   */
  push(id: number): string {
    return this.#native.call((stream) => stream.push(id))
  }

  /** Returns the pending text, with U+FFFD for an unfinished character, and resets the stream. */
  finish(): string {
    return this.#native.call((stream) => stream.finish())
  }

  /** Gives the native memory back. */
  [Symbol.dispose](): void {
    this.#native.free()
  }
}
