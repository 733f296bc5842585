/** Distributions of a model at the positions of given tokens. */

import { checkKnownKeys, checkTypedArray, FulmarError } from '../core/index.js'
import { drawToken } from '../objective/index.js'
import type { Policy } from './policy.js'

/** Sequences, one after another, and a mask of the positions whose distributions are returned. */
export interface DistributionRequest {
  /** Token ids. Shape `[T]`. */
  readonly ids: Uint32Array
  /** Sequence `s` has the tokens `offsets[s]..offsets[s + 1]`. Shape `[S + 1]`. */
  readonly offsets: Uint32Array
  /** 1 where a distribution is returned, else 0; 0 at the first token of each sequence. Shape `[T]`. */
  readonly mask: Uint8Array
}

/** A {@link Policy} whose model returns whole distributions: one in this process. */
export interface DistributionPolicy extends Policy {
  /**
   * @throws {FulmarError} `EMPTY` if the mask is 0 everywhere; `LIMIT_EXCEEDED` for more than 2^26 numbers;
   * as {@link Policy.score}.
   */
  distribution(request: DistributionRequest): Promise<TokenDistribution>
}

/**
 * A categorical distribution over the vocabulary at each masked position of some sequences (temperature 1, no
 * filter). Results per token have shape `[T]`, 0 where the mask is 0.
 *
 * @example
 * ```ts
 * import { TokenDistribution } from 'fulmar/policy'
 * import assert from 'node:assert/strict'
 *
 * const half = Math.log(0.5)
 * const distribution = new TokenDistribution({
 *   ...{ ids: Uint32Array.of(1, 0), offsets: Uint32Array.of(0, 2), mask: Uint8Array.of(0, 1) },
 *   logProbs: Float32Array.of(half, half),
 * })
 * assert.deepEqual(distribution.logProb(), Float32Array.of(0, half))
 * assert.deepEqual(distribution.entropy(), Float32Array.of(0, -half))
 * assert.ok([0, 1].includes(distribution.sample({ seed: 3 })[1] ?? -1))
 * ```
 */
export class TokenDistribution {
  /** Tokens of the sequences. Shape `[T]`. */
  readonly ids: Uint32Array
  /** Bounds of the sequences. Shape `[S + 1]`. */
  readonly offsets: Uint32Array
  /** 1 where there is a distribution. Shape `[T]`. */
  readonly mask: Uint8Array
  /** Vocabulary size. */
  readonly vocabSize: number
  readonly #logProbs: Float32Array
  /** Row of each position; -1 without one. */
  readonly #rowOf: Int32Array

  /**
   * `logProbs` has a row for each masked position, in order: shape `[N, V]`. All arrays are kept.
   * @throws {FulmarError} `SHAPE_MISMATCH` for another shape, or a mask of another length than the ids;
   * `EMPTY` if the mask is 0 everywhere;
   * `MALFORMED` for arrays of other types.
   */
  constructor(options: DistributionRequest & { readonly logProbs: Float32Array }) {
    checkKnownKeys(
      'options',
      options,
      ['ids', 'offsets', 'mask', 'logProbs'],
      ['ids', 'offsets', 'mask', 'logProbs'],
    )
    const { ids, offsets, mask, logProbs } = options
    checkTypedArray('ids', ids, Uint32Array)
    checkTypedArray('offsets', offsets, Uint32Array)
    checkTypedArray('mask', mask, Uint8Array)
    checkTypedArray('logProbs', logProbs, Float32Array)
    if (mask.length !== ids.length)
      throw new FulmarError(
        'SHAPE_MISMATCH',
        `mask must be as long as ids (${ids.length}): got ${mask.length}`,
      )
    let count = 0
    this.#rowOf = Int32Array.from(mask, (flag) => (flag === 0 ? -1 : count++))
    if (count === 0) throw new FulmarError('EMPTY', 'mask must hold a 1: it is 0 everywhere')
    if (logProbs.length === 0 || logProbs.length % count !== 0) {
      const detail = `logProbs must hold ${count} rows of one length: got ${logProbs.length} numbers`
      throw new FulmarError('SHAPE_MISMATCH', detail)
    }
    this.ids = ids
    this.offsets = offsets
    this.mask = mask
    this.vocabSize = logProbs.length / count
    this.#logProbs = logProbs
  }

  /**
   * Returns the log-probs of all tokens at position `at` of `[T]`: a view of `[V]`.
   * @throws {FulmarError} `OUT_OF_RANGE` where the mask is 0.
   */
  logProbsAt(at: number): Float32Array {
    const row = this.#rowOf[at] ?? -1
    if (row < 0) throw new FulmarError('OUT_OF_RANGE', `at must be a position with mask 1: got ${at}`)
    return this.#logProbs.subarray(row * this.vocabSize, (row + 1) * this.vocabSize)
  }

  /**
   * Returns the log-probs of `ids`, one for each position. A new array of `[T]`.
   * @throws {FulmarError} `SHAPE_MISMATCH` for another number of ids; `OUT_OF_RANGE` for one outside the
   * vocabulary.
   */
  logProb(ids: Uint32Array = this.ids): Float32Array {
    checkTypedArray('ids', ids, Uint32Array)
    if (ids.length !== this.mask.length)
      throw new FulmarError('SHAPE_MISMATCH', `ids must be ${this.mask.length}: got ${ids.length}`)
    return this.#perPlace((logProbs, at) => {
      const value = logProbs[ids[at] ?? -1]
      if (value !== undefined) return value
      throw new FulmarError('OUT_OF_RANGE', `ids must be below ${this.vocabSize}: got ${ids[at]}`)
    })
  }

  /** Computes the entropies in nats. A new array of `[T]`. Costs O(N V). */
  entropy(): Float32Array {
    return this.#perPlace((logProbs) =>
      logProbs.reduce((sum, logProb) => (logProb > -200 ? sum - Math.exp(logProb) * logProb : sum), 0),
    )
  }

  /**
   * Draws a token at each masked position, by seed and position only; elsewhere keeps the given token. A new
   * array of `[T]`.
   * @throws {FulmarError} `OUT_OF_RANGE` if the seed is not a non-negative safe integer.
   */
  sample(options: { readonly seed: number }): Uint32Array {
    checkKnownKeys('options', options, ['seed'], ['seed'])
    const { seed } = options
    return this.ids.map((id, at) =>
      this.mask[at] === 0 ? id : drawToken({ logits: this.logProbsAt(at), seed, drawIndex: at }).id,
    )
  }

  #perPlace(body: (logProbs: Float32Array, at: number) => number): Float32Array {
    return Float32Array.from(this.mask, (flag, at) => (flag === 0 ? 0 : body(this.logProbsAt(at), at)))
  }
}
