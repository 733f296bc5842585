/** Supervised fine-tuning over ragged batches of log-probabilities. */

import { call, type OnDevice } from '../core/index.js'
import { raw } from '../native/index.js'
import { optionsJson } from './argument.js'
import { KL_PENALTY_KEYS, type KlPenalty, type LossResult, sequenceLossResult, withColumns } from './loss.js'

/**
 * How sequences become one number: their mean or sum, the mean over all trained tokens, or sums divided by the tokens or the
 * sequences that the caller counts over a whole optimiser step, so that micro-batches add up to one batch.
 */
export type SFTReduction =
  | 'mean'
  | 'sum'
  | 'tokenMean'
  | { readonly globalTokens: number }
  | { readonly globalSequences: number }

/** The keys of {@link SFTReduction}. */
export const REDUCTION_KEYS = { globalTokens: true, globalSequences: true } as const

/** Options of {@link SFTLoss}; the defaults are those of the Rust core. */
export interface SFTLossOptions extends OnDevice {
  /** How sequences become one number. @default 'mean' */
  readonly reduction?: SFTReduction
  /** Where sequences count: whether a sequence counts by its mean over trained tokens, or by their sum. @default true */
  readonly normalizeBySeqLength?: boolean
  /**
   * Minor SFT ([paper](https://arxiv.org/abs/2408.10642)): a sequence's loss is `-log sigmoid(beta ahead)`, `ahead` its
   * log-probability less the reference's (divided as `normalizeBySeqLength` says), so that it counts for less the further it is
   * ahead. Above 0; needs `refLogProb`, a reduction by sequences, and no `klToRef`. @default off
   */
  readonly minorBeta?: number
  /**
   * Dynamic fine-tuning ([paper](https://arxiv.org/abs/2508.05629)): a token weighs by its own probability, held fixed; not with
   * `minorBeta`. @default false
   */
  readonly dft?: boolean
  /** The penalty for leaving the reference; needs `refLogProb` when its coefficient is above 0. @default none */
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

/** `S` sequences one after another, laid out as a `LossBatch`. The arrays are copied, not kept. */
export interface SFTBatch {
  /** `[T]` under the policy in training. */
  readonly logProb: Float32Array
  /** `[T]` under a frozen reference. */
  readonly refLogProb?: Float32Array
  /** `[T]` 1 where the token is trained, else 0. */
  readonly mask: Uint8Array
  /** `[S + 1]` from 0 to `T`. */
  readonly offsets: Uint32Array
}

/** What {@link SFTLoss.forward} returns. */
export interface SFTLossOutput extends LossResult {
  /** `[S]` the likelihood term of each sequence before they are joined. */
  readonly sequenceLoss: Float64Array
}

/** The columns of {@link SFTBatch}. */
const SFT_COLUMNS = { needed: ['logProb'], optional: ['refLogProb'] } as const

/**
 * Minus the log-probability of worked examples: `-sum_t mask log p` for each sequence, divided by its trained tokens, then joined.
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
  readonly #optionsJson: string

  /**
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown key, with the nearest one; `OUT_OF_RANGE` for a value outside its
   * range; `MALFORMED` for one of another type.
   */
  constructor(options: SFTLossOptions = {}) {
    this.#optionsJson = optionsJson('SFTLoss', options, OPTION_KEYS)
    call(() => raw.checkLossOptions('SFTLoss', this.#optionsJson))
  }

  /**
   * Value, metrics and gradient over `batch`. Costs O(T).
   *
   * @throws {FulmarError} As `GRPOLoss.forward`.
   */
  forward(batch: SFTBatch): SFTLossOutput {
    return sequenceLossResult(withColumns(batch, SFT_COLUMNS, (columns) => columns.sft(this.#optionsJson)))
  }
}
