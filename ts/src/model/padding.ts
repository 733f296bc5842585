/** Padded rows as the ragged sequences that a decoder computes. */

import { checkKnownKeys, Handle } from '../core/index.js'
import { type RawUnpaddedTokenBatch, raw } from '../native/index.js'
import type { TokenBatch } from './token-batch.js'

/** `B` rows of `width` tokens each, padded at the left, the right or both. */
export interface PaddedTokenBatch {
  /** Token ids; ids in padding are ignored. Shape `[B, width]`. */
  readonly ids: Uint32Array
  /** 1 for tokens, 0 for padding. Shape `[B, width]`. */
  readonly attentionMask: Uint8Array
  /** 1 where a token is wanted (see {@link TokenBatch}), else 0; 0 in padding. Shape `[B, width]`. */
  readonly mask: Uint8Array
  /**
   * Position of each token. Shape `[B, width]`.
   * @default counted from each row's first token
   */
  readonly positions?: Uint32Array
  /** Tokens of a row, padding included. */
  readonly width: number
}

/**
 * The tokens of a {@link PaddedTokenBatch} without its padding, which is never computed: it is left out before, and comes back as 0. Holds native
 * memory: dispose it, or declare it with `using`.
 *
 * @example
 * ```ts
 * import { Decoder, UnpaddedTokenBatch } from 'fulmar/model'
 * import assert from 'node:assert/strict'
 *
 * const shape = { model_type: 'llama', vocab_size: 9, hidden_size: 4, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 2 } as const
 * using decoder = Decoder.fromSeed(shape, { seed: 1 })
 * using unpadded = new UnpaddedTokenBatch({
 *   ids: Uint32Array.of(0, 5, 6, 7, 8, 0),
 *   attentionMask: Uint8Array.of(0, 1, 1, 1, 1, 0),
 *   mask: Uint8Array.of(0, 0, 1, 0, 1, 0),
 *   width: 3,
 * })
 * assert.deepEqual([...unpadded.batch.offsets], [0, 2, 4])
 * const { logProb } = await decoder.forward(unpadded.batch)
 * const padded = unpadded.pad(logProb)
 * assert.deepEqual([padded[0], padded[2]], [0, logProb[1]])
 * await decoder.backward(unpadded.unpad(Float32Array.of(0, 0, -1, 0, -1, 0)))
 * ```
 */
export class UnpaddedTokenBatch {
  /** The sequences, one for each row. */
  readonly batch: TokenBatch
  readonly #native: Handle<RawUnpaddedTokenBatch>

  /**
   * Leaves the padding out.
   * @throws {FulmarError} `EMPTY` without rows; `SHAPE_MISMATCH` if lengths disagree; `OUT_OF_RANGE` for a mask that wants padding.
   */
  constructor(padded: PaddedTokenBatch) {
    checkKnownKeys('padded', padded, ['ids', 'attentionMask', 'mask', 'positions', 'width'])
    const { ids, attentionMask, mask, positions, width } = padded
    this.#native = new Handle('UnpaddedTokenBatch', () =>
      raw.UnpaddedTokenBatch.create(ids, attentionMask, mask, positions ?? new Uint32Array(0), width),
    )
    this.batch = this.#native.call((native) => ({
      ids: native.ids(),
      offsets: native.offsets(),
      mask: native.mask(),
      ...(positions && { positions: native.positions() }),
    }))
  }

  /**
   * One value a token as `[B, width]`, 0 in padding.
   * @throws {FulmarError} `SHAPE_MISMATCH` for another number of values.
   */
  pad(values: Float32Array): Float32Array {
    return this.#native.call((native) => native.pad(values))
  }

  /**
   * The inverse of {@link UnpaddedTokenBatch.pad}: of `[B, width]` one value a token.
   * @throws {FulmarError} `SHAPE_MISMATCH` for another number of values.
   */
  unpad(padded: Float32Array): Float32Array {
    return this.#native.call((native) => native.unpad(padded))
  }

  /** Gives the native memory back. */
  [Symbol.dispose](): void {
    this.#native.free()
  }
}
