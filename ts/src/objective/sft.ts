/** Supervised fine-tuning over ragged batches of log-probabilities. */

import type { OnDevice } from '../core/index.js'
import { type RawSftLoss, raw } from '../native/index.js'
import { optionsJson } from './argument.js'
import { CoreLoss, checkColumns, KL_PENALTY_KEYS, type KlPenalty, LAYOUT, type LossResult } from './loss.js'

/**
 * Reduction of sequences to one number: their mean or sum, the mean over all trained tokens, or sums divided
 * by the number of tokens or sequences of a whole optimizer step, so that micro-batches add up to one batch.
 */
export type SFTReduction =
  | 'mean'
  | 'sum'
  | 'tokenMean'
  | { readonly globalTokens: number }
  | { readonly globalSequences: number }

/** Keys of {@link SFTReduction}. */
export const REDUCTION_KEYS = { globalTokens: true, globalSequences: true } as const

/** Options of {@link SFTLoss}; the defaults are those of the Rust core. */
export interface SFTLossOptions extends OnDevice {
  /** Reduction of sequences to one number. @default 'mean' */
  readonly reduction?: SFTReduction
  /**
   * If true, a sequence counts by its mean over trained tokens, else by their sum; for reductions over
   * sequences.
   * @default true
   */
  readonly normalizeBySeqLength?: boolean
  /**
   * Minor SFT ([paper](https://arxiv.org/abs/2408.10642)): a sequence's loss is `-log sigmoid(beta ahead)`,
   * with `ahead` its log-probability less the reference's (divided according to `normalizeBySeqLength`), so
   * that its weight falls as `ahead` grows. Above 0; needs `refLogProb`, a reduction by sequences, and no
   * `klToRef`.
   * @default off
   */
  readonly minorBeta?: number
  /**
   * If true, uses dynamic fine-tuning ([paper](https://arxiv.org/abs/2508.05629)): weights a token by its own
   * probability, held fixed; not with `minorBeta`.
   * @default false
   */
  readonly dft?: boolean
  /** Penalty for leaving the reference; needs `refLogProb` if its coefficient is above 0. @default none */
  readonly klToRef?: Omit<KlPenalty, 'importanceWeighted'>
}

const OPTION_KEYS = {
  device: true,
  reduction: REDUCTION_KEYS,
  normalizeBySeqLength: true,
  minorBeta: true,
  dft: true,
  klToRef: KL_PENALTY_KEYS,
} as const

/** `S` sequences one after another, laid out as a `LossBatch`. The arrays are read, not kept. */
export interface SFTBatch {
  /** `[T]` log-probabilities under the policy in training. */
  readonly logProb: Float32Array
  /** `[T]` log-probabilities under a frozen reference. */
  readonly refLogProb?: Float32Array
  /** `[T]` 1 where the token is trained, else 0. */
  readonly mask: Uint8Array
  /** `[S + 1]` from 0 to `T`. */
  readonly offsets: Uint32Array
}

/** Result of {@link SFTLoss.forward}. */
export interface SFTLossOutput extends LossResult {
  /** `[S]` likelihood term of each sequence before the reduction. */
  readonly sequenceLoss: Float64Array
}

const COLUMNS = {
  needed: { logProb: 'Float32Array', ...LAYOUT },
  optional: { refLogProb: 'Float32Array' },
} as const

/**
 * Computes the negative log-likelihood of worked examples: `-sum_t mask log p` for each sequence, divided by
 * its trained tokens, then reduced.
 *
 * Metrics: `nllLoss`, `minorLoss` (in its place with `minorBeta`), `klToRefLoss`, `klToRef`, `logProb`, `numTokens`,
 * `numSequences`.
 *
 * @example
 * ```ts
 * import { SFTLoss } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const { loss, sequenceLoss, gradLogProb } = new SFTLoss().forward({
 *   logProb: Float32Array.of(-9, -1, -3, -0.5),
 *   mask: Uint8Array.of(0, 1, 1, 1),
 *   offsets: Uint32Array.of(0, 3, 4),
 * })
 * assert.equal(loss, 1.25)
 * assert.deepEqual([...sequenceLoss], [2, 0.5])
 * assert.deepEqual([...gradLogProb], [0, -0.25, -0.25, -0.5])
 *
 * const minor = new SFTLoss({ minorBeta: 0.1 }).forward({
 *   logProb: Float32Array.of(-1),
 *   refLogProb: Float32Array.of(-1), // not ahead yet
 *   mask: Uint8Array.of(1),
 *   offsets: Uint32Array.of(0, 1),
 * })
 * assert.equal(minor.loss, Math.log(2))
 * ```
 */
export class SFTLoss {
  readonly #loss: CoreLoss<RawSftLoss>

  /**
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown key, with the nearest one; `OUT_OF_RANGE` for a value outside its
   * range; `MALFORMED` for one of another type.
   */
  constructor(options: SFTLossOptions = {}) {
    const json = optionsJson('SFTLoss', options, OPTION_KEYS)
    this.#loss = new CoreLoss('SFTLoss', () => raw.SftLoss.create(json))
  }

  /**
   * Computes value, metrics and gradient over `batch`. Costs O(T).
   *
   * @throws {FulmarError} As `GRPOLoss.forward`.
   */
  forward(batch: SFTBatch): SFTLossOutput {
    checkColumns(batch, COLUMNS)
    const { logProb, refLogProb, mask, offsets } = batch
    return this.#loss.sequenceResult((loss) => loss.forward(logProb, refLogProb, mask, offsets))
  }
}
