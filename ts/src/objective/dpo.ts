/** Direct preference optimisation and its family, over ragged pairs of answers. */

import type { OnDevice } from '../core/index.js'
import { type RawDpoLoss, raw } from '../native/index.js'
import { optionsJson } from './argument.js'
import { CoreLoss, checkColumns, LAYOUT, type LossResult } from './loss.js'

/**
 * The loss of a pair whose answers have the log-ratios `c` (chosen) and `r` (rejected) of policy and reference, with
 * `x = beta (c - r)`, `s` the sigmoid, `l(x) = -log s(x)` and the label smoothing `e`:
 *
 * | loss | value | paper |
 * |---|---|---|
 * | `sigmoid` (DPO) | `l(x)` | [2305.18290](https://arxiv.org/abs/2305.18290) |
 * | `hinge` (SLiC) | `max(0, 1 - x)` | [2305.10425](https://arxiv.org/abs/2305.10425) |
 * | `ipo` | `(c / len_c - r / len_r - 1 / (2 beta))^2` | [2310.12036](https://arxiv.org/abs/2310.12036) |
 * | `exoPair` | `q log(q / (1 - e)) + (1 - q) log((1 - q) / e)`, `q = s(x)` | [2402.00856](https://arxiv.org/abs/2402.00856) |
 * | `ncaPair` | `l(beta c) + l(-beta c) / 2 + l(-beta r) / 2` | [2402.05369](https://arxiv.org/abs/2402.05369) |
 * | `robust` | `((1 - e) l(x) - e l(-x)) / (1 - 2 e)` | [2403.00409](https://arxiv.org/abs/2403.00409) |
 * | `bcoPair` | `l(beta c) + l(-beta r)` | [2404.04656](https://arxiv.org/abs/2404.04656) |
 * | `sppoHard` | `(c - 1 / (2 beta))^2 + (r + 1 / (2 beta))^2` | [2405.00675](https://arxiv.org/abs/2405.00675) |
 * | `aot` | `(1 - e) l(y) + e l(-y)`: `y` from sorted differences of the policy and sorted ones of the reference | [2406.05882](https://arxiv.org/abs/2406.05882) |
 * | `aotUnpaired` | the same: `y` from sorted `c` and sorted `r` | the same |
 * | `apoZero` | `s(-beta c) + s(beta r)` | [2408.06266](https://arxiv.org/abs/2408.06266) |
 * | `apoDown` | `s(beta c) + s(-x)` | the same |
 * | `discopop` | `(1 - m) l(x) + m e^-x`, `m = s(x / tau)` | [2406.08414](https://arxiv.org/abs/2406.08414) |
 * | `sft` | `-log pi(chosen)`, the mean over tokens: for a mix with another loss | |
 * | `sigmoidNorm` | `l(beta (c / len_c - r / len_r))` | [2405.14734](https://arxiv.org/abs/2405.14734) |
 */
export type DPOLossType =
  | 'sigmoid'
  | 'hinge'
  | 'ipo'
  | 'exoPair'
  | 'ncaPair'
  | 'robust'
  | 'bcoPair'
  | 'sppoHard'
  | 'aot'
  | 'aotUnpaired'
  | 'apoZero'
  | 'apoDown'
  | 'discopop'
  | 'sft'
  | 'sigmoidNorm'

/** Options of {@link DPOLoss}; the defaults are those of the Rust core. */
export interface DPOLossOptions extends OnDevice {
  /** Losses to sum, each with its weight above 0. @default { sigmoid: 1 } */
  readonly lossWeights?: { readonly [L in DPOLossType]?: number }
  /** Strength of the penalty for leaving the reference, above 0. @default 0.1 */
  readonly beta?: number
  /**
   * Assumed share of wrong labels, in `[0, 0.5)`; for `exoPair` (which needs it), `robust`, `aot`,
   * `aotUnpaired`.
   * @default 0
   */
  readonly labelSmoothing?: number
  /**
   * Divergence from the reference ([paper](https://arxiv.org/abs/2309.16240)), for losses of `x`: log-ratios
   * `c` become
   * `1 - e^-c` (`forwardKl`), `log 2 + log s(c)` (`jsDivergence`) or `(e^((a - 1) c) - 1) / (a - 1)`. @default 'reverseKl'
   */
  readonly fDivergence?: 'reverseKl' | 'forwardKl' | 'jsDivergence' | { readonly alphaDivergence: number }
  /**
   * Weight of tokens beyond the length of the shorter answer ([LD-DPO](https://arxiv.org/abs/2409.06411)), in
   * `[0, 1]`.
   * @default 1
   */
  readonly ldAlpha?: number
  /**
   * If true, weights pairs by the probability of both answers under the policy
   * ([WPO](https://arxiv.org/abs/2406.11827)). Needs `logSumSqProb`, an optional output of `Decoder.forward`,
   * `tokenLogProbs` and `headLogProbs`; not with `aot` and `aotUnpaired`.
   * @default false
   */
  readonly useWeighting?: boolean
  /** Temperature of the transition of `discopop` between its two losses, above 0. @default 0.05 */
  readonly discopopTau?: number
  /** Divisor of sums over pairs: the number of pairs of a whole optimizer step. @default that of the batch */
  readonly numPairs?: number
  /**
   * Divisor of the `sft` term: the number of chosen tokens of a whole optimizer step.
   * @default that of the batch
   */
  readonly numChosenTokens?: number
}

const OPTION_KEYS = {
  device: true,
  lossWeights: {
    sigmoid: true,
    hinge: true,
    ipo: true,
    exoPair: true,
    ncaPair: true,
    robust: true,
    bcoPair: true,
    sppoHard: true,
    aot: true,
    aotUnpaired: true,
    apoZero: true,
    apoDown: true,
    discopop: true,
    sft: true,
    sigmoidNorm: true,
  },
  beta: true,
  labelSmoothing: true,
  fDivergence: { alphaDivergence: true },
  ldAlpha: true,
  useWeighting: true,
  discopopTau: true,
  numPairs: true,
  numChosenTokens: true,
} as const

/** Sequence `2 p` is the chosen answer of pair `p`, sequence `2 p + 1` the rejected one. The arrays are read, not kept. */
export interface PreferenceBatch {
  /** `[T]` log-probabilities under the policy in training. */
  readonly logProb: Float32Array
  /** `[T]` log-probabilities under a frozen reference. */
  readonly refLogProb: Float32Array
  /** `[T]` the logarithm of the sum of the squares of all probabilities at each token, for `useWeighting`. */
  readonly logSumSqProb?: Float32Array | undefined
  /** `[T]` 1 for tokens of answers, else 0; each sequence needs one. */
  readonly mask: Uint8Array
  /** `[2 P + 1]` from 0 to `T`. */
  readonly offsets: Uint32Array
}

const COLUMNS = {
  needed: { logProb: 'Float32Array', refLogProb: 'Float32Array', ...LAYOUT },
  optional: { logSumSqProb: 'Float32Array' },
} as const

/**
 * Trains the policy to prefer the chosen of two answers to one prompt, relative to the reference: the mean
 * over pairs of one or more losses. {@link DPOLossType} lists their formulas and papers.
 *
 * Metrics: each loss before its weight, such as `sigmoidLoss`; `rewardChosen`, `rewardRejected` (means of
 * `beta` times the log-ratio), `accuracy` (share of pairs in which the first is larger), `margin`,
 * `logProbChosen`, `logProbRejected`, `numPairs`, `numTokens`.
 *
 * @example
 * ```ts
 * import { DPOLoss } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const pair = {
 *   logProb: Float32Array.of(-1, -2),
 *   refLogProb: Float32Array.of(-1, -2), // the policy is still the reference
 *   mask: Uint8Array.of(1, 1),
 *   offsets: Uint32Array.of(0, 1, 2),
 * }
 * const { loss, gradLogProb, metrics } = new DPOLoss({ beta: 0.5 }).forward(pair)
 * assert.equal(loss, Math.log(2))
 * assert.deepEqual([...gradLogProb], [-0.25, 0.25])
 * assert.deepEqual([metrics.margin, metrics.accuracy, metrics.numPairs], [0, 0, 1])
 *
 * const mixed = new DPOLoss({ beta: 0.5, lossWeights: { sigmoid: 1, sft: 0.5 } }).forward(pair)
 * assert.equal(mixed.loss, Math.log(2) + 0.5)
 * ```
 */
export class DPOLoss {
  /** True if {@link PreferenceBatch.logSumSqProb} is read, as with `useWeighting`. */
  readonly readsLogSumSqProb: boolean
  readonly #loss: CoreLoss<RawDpoLoss>

  /**
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown key or loss, with the nearest one; `OUT_OF_RANGE` for a value outside its
   * range; `INCOMPATIBLE` for options that no given loss reads; `EMPTY` without a loss; `MALFORMED` for a value of another type.
   */
  constructor(options: DPOLossOptions = {}) {
    const json = optionsJson('DPOLoss', options, OPTION_KEYS)
    this.#loss = new CoreLoss('DPOLoss', () => raw.DpoLoss.create(json))
    this.readsLogSumSqProb = options.useWeighting ?? false
  }

  /**
   * Computes value, metrics and gradient over `batch`. Costs O(T), and O(P log P) for the losses that sort.
   *
   * @throws {FulmarError} `SHAPE_MISMATCH` if two lengths disagree or a sequence has no partner; `EMPTY` if a sequence has no
   * trained token or `logSumSqProb` is missing; `NON_FINITE` if a trained position holds a NaN or an infinity; `OUT_OF_RANGE` for
   * decreasing offsets or a mask that is not 0 or 1; `MALFORMED` for an array of another type.
   */
  forward(batch: PreferenceBatch): LossResult {
    checkColumns(batch, COLUMNS)
    const { logProb, refLogProb, logSumSqProb, mask, offsets } = batch
    return this.#loss.result((loss) => loss.forward(logProb, refLogProb, logSumSqProb, mask, offsets))
  }
}
