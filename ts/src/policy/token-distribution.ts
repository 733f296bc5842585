/** What a model would have drawn in the places of tokens that are there. */

import { checkKnownKeys, checkTypedArray, FulmarError } from '../core/index.js'
import { drawToken } from '../objective/index.js'
import type { Policy } from './policy.js'

/** Sequences, one after another, and the places whose distributions are wanted. */
export interface DistributionRequest {
  /** Token ids. Shape `[T]`. */
  readonly ids: Uint32Array
  /** Sequence `s` has the tokens `offsets[s]..offsets[s + 1]`. Shape `[S + 1]`. */
  readonly offsets: Uint32Array
  /** 1 where a distribution is wanted, else 0; 0 at each sequence's first token, which follows none. Shape `[T]`. */
  readonly mask: Uint8Array
}

/** A {@link Policy} whose model tells whole distributions: one in this process. */
export interface DistributionPolicy extends Policy {
  /** @throws {FulmarError} `EMPTY` if no place is wanted; `LIMIT_EXCEEDED` for more than 2^26 numbers; as {@link Policy.score}. */
  distribution(request: DistributionRequest): Promise<TokenDistribution>
}

/**
 * A categorical distribution over the vocabulary at each masked place of some sequences (temperature 1, no filter). What it tells of
 * tokens has their shape `[T]`; 0 where the mask is 0.
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
  /** The tokens that stand there. Shape `[T]`. */
  readonly ids: Uint32Array
  /** Shape `[S + 1]`. */
  readonly offsets: Uint32Array
  /** 1 where there is a distribution. Shape `[T]`. */
  readonly mask: Uint8Array
  /** Tokens of the model. */
  readonly vocabSize: number
  readonly #logProbs: Float32Array
  /** The row of each place; -1 for none. */
  readonly #rowOf: Int32Array

  /**
   * `logProbs` has a row for each masked place, in their order: shape `[N, V]`. All arrays are kept.
   * @throws {FulmarError} `SHAPE_MISMATCH` if it does not, or the mask is not as long as the ids; `EMPTY` if no place is masked;
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

  /** The log-probs of all tokens in place `at` of `[T]`: a view of `[V]`. @throws {FulmarError} `OUT_OF_RANGE` where the mask is 0. */
  logProbsAt(at: number): Float32Array {
    const row = this.#rowOf[at] ?? -1
    if (row < 0) throw new FulmarError('OUT_OF_RANGE', `at must be a place whose mask is 1: got ${at}`)
    return this.#logProbs.subarray(row * this.vocabSize, (row + 1) * this.vocabSize)
  }

  /**
   * The log-probs of `ids`, one in each place. A new array of `[T]`.
   * @throws {FulmarError} `SHAPE_MISMATCH` for another number of ids; `OUT_OF_RANGE` for one that is not of the vocabulary.
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

  /** The entropies in nats. A new array of `[T]`. Costs O(N V). */
  entropy(): Float32Array {
    return this.#perPlace((logProbs) =>
      logProbs.reduce((sum, logProb) => (logProb > -200 ? sum - Math.exp(logProb) * logProb : sum), 0),
    )
  }

  /**
   * Draws a token in each masked place, by seed and place alone; elsewhere the token that stands there. A new array of `[T]`.
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
