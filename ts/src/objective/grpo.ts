/** Group relative policy optimization and its family, over ragged batches of log-probabilities. */

import type { OnDevice } from '../core/index.js'
import { type RawGrpoLoss, raw } from '../native/index.js'
import { optionsJson } from './argument.js'
import {
  CoreLoss,
  checkColumns,
  KL_PENALTY_KEYS,
  type KlPenalty,
  LAYOUT,
  type LossResult,
  type Normalization,
} from './loss.js'

/**
 * A loss of the family by its name, with the bounds that its paper recommends; other options override them.
 *
 * | preset | sets |
 * |---|---|
 * | `grpo` ([paper](https://arxiv.org/abs/2402.03300)) | `normalization: 'sequenceMean'` |
 * | `bnpo` (TRL's name) | nothing: the mean over the tokens of the batch |
 * | `dapo` ([paper](https://arxiv.org/abs/2503.14476)) | `clipEpsilon: [0.2, 0.28]`; with micro-batches give `globalTokens` |
 * | `drGrpo` ([paper](https://arxiv.org/abs/2503.20783)) | nothing, and needs `normalization: { fixedLength
 * }`, the longest answer |
 * | `gspo` ([paper](https://arxiv.org/abs/2507.18071)) | `ratio: 'sequence', clipEpsilon: [3e-4, 4e-4], normalization: 'sequenceMean'` |
 * | `gspoToken` (the same) | `ratio: 'sequenceToken'`, the rest as `gspo` |
 * | `cispo` ([paper](https://arxiv.org/abs/2506.13585)) | `surrogate: { cispo: { cap: 5 } }` |
 * | `sapo` ([paper](https://arxiv.org/abs/2511.20347)) | `surrogate: { sapo: { tauPositive: 1, tauNegative: 1.05 } }, normalization: 'sequenceMean'` |
 * | `luspo` ([paper](https://arxiv.org/abs/2602.05261)) | `ratio: 'sequence', clipEpsilon: [2e-3, 2.5e-3], normalization: { fixedLength: 1 }` |
 * | `vespo` ([paper](https://arxiv.org/abs/2602.10693)) | `surrogate: { vespo: { positive: { k: 2, lambda: 3 }, negative: { k: 3, lambda: 2 } } }` |
 * | `gmpo` ([paper](https://arxiv.org/abs/2507.20673)) | `surrogate: 'gmpo', clipEpsilon: 0.4, normalization: 'sequenceMean'` |
 * | `rloo` ([paper](https://arxiv.org/abs/2402.14740)) | `ratio: 'sequenceProduct', normalization: 'sequenceMean'` |
 * | `torchtitan` (its GRPO) | `logRatioMax: 10, clampLogRatio: true`; its DAPO is that with `clipEpsilon: [0.2, 0.28]` |
 */
export type GRPOPreset =
  | 'grpo'
  | 'bnpo'
  | 'dapo'
  | 'drGrpo'
  | 'gspo'
  | 'gspoToken'
  | 'cispo'
  | 'sapo'
  | 'luspo'
  | 'vespo'
  | 'gmpo'
  | 'rloo'
  | 'torchtitan'

/** VESPO's `phi(W) = W^k e^(lambda (1 - W))`, both at least 0. */
export interface Envelope {
  readonly k: number
  readonly lambda: number
}

/**
 * Policy term of a token with ratio `r` and advantage `A`. `clip`: `-min(r A, clip(r) A)`. `cispo`: `-min(r,
 * cap) A log p`, the weight held fixed. `sapo`: `-4 / tau sigmoid(tau (r - 1)) A`. `vespo`: `-phi(W) A log
 * p`, `W` the ratio of the sequence. `gmpo`: `-exp(mean of clipped log r) A`. `dppo`: `-r A`, unless the
 * probability left the old one by more than `delta` in the direction of the advantage. `none`: `-r A`.
 */
export type Surrogate =
  | 'clip'
  | 'gmpo'
  | 'none'
  | { readonly cispo: { readonly cap: number } }
  | { readonly sapo: { readonly tauPositive: number; readonly tauNegative: number } }
  | { readonly vespo: { readonly positive: Envelope; readonly negative: Envelope } }
  | { readonly dppo: { readonly delta: number } }

/** Result of {@link GRPOLoss.forward}; the options decide which `metrics` and `gradEntropy` it has. */
export type GRPOLossOutput = LossResult

/**
 * Correction for a sampler whose log-probabilities differ from `oldLogProb`. Uses the ratio `exp(oldLogProb -
 * samplerLogProb)`, which is 1 if `samplerLogProb` is NaN.
 */
export interface Correction {
  /**
   * Level of the ratio: the token, the product over its sequence, or its geometric mean (which only rejects).
   * @default 'token'
   */
  readonly level?: 'token' | 'sequence' | 'geometric'
  /**
   * `truncate` multiplies by the ratio clamped to the bounds, `mask` multiplies by the ratio and rejects
   * tokens outside the bounds, `veto` rejects sequences with a token outside.
   * @default 'truncate'
   */
  readonly rule?: 'truncate' | 'mask' | 'veto'
  /** Lower bound, at least 0. @default 0 */
  readonly min?: number
  /** Upper bound, above `min`. @default 3 */
  readonly max?: number
}

/** Options of {@link GRPOLoss}; the defaults are those of the Rust core. */
export interface GRPOLossOptions extends OnDevice {
  /** A loss of the family by its name. @default none: the options below */
  readonly preset?: GRPOPreset
  /**
   * Level of the ratio of a token: the token itself; the geometric mean over its sequence, with a gradient
   * shared by all tokens, or with the gradient of the token alone; the product over its sequence. The
   * surrogates `gmpo` and `dppo` work on tokens.
   * @default 'token'
   */
  readonly ratio?: 'token' | 'sequence' | 'sequenceToken' | 'sequenceProduct'
  /** Policy term of a token. @default 'clip' */
  readonly surrogate?: Surrogate
  /** Corrections applied in turn; they need `samplerLogProb`. @default none */
  readonly corrections?: readonly Correction[]
  /**
   * Rejects tokens of negative advantage in sequences whose mean of `log q - log p` exceeds this value, with
   * `q` the probability of the sampler, or else the old one; at least 0.
   * @default off
   */
  readonly offPolicyThreshold?: number
  /** If true, rejected tokens still count in denominators and in other terms, as in TRL. @default false */
  readonly keepRejected?: boolean
  /** Distance of the ratio from 1 at which its gradient stops: both sides, or `[low, high]`. @default 0.2 */
  readonly clipEpsilon?: number | readonly [low: number, high: number]
  /** The largest ratio that still pushes down a token with a negative advantage; above `1 + high`. @default off */
  readonly dualClip?: number
  /** Denominator of the loss. @default 'tokenMean' */
  readonly normalization?: Normalization
  /** Penalty for leaving the reference; needs `refLogProb` if its coefficient is above 0. @default none */
  readonly klToRef?: KlPenalty
  /** Penalty for leaving the policy that drew the tokens. @default none */
  readonly klToInference?: KlPenalty
  /** Drops tokens whose `(logProb - oldLogProb)^2 / 2` exceeds this value. @default off */
  readonly klMaskThreshold?: number
  /** Drops tokens whose `|logProb - oldLogProb|` exceeds this value, in nats, in `(0, 700]`. @default 20 */
  readonly logRatioMax?: number
  /**
   * If true, keeps these tokens with the ratio clamped to the bound, as torchtitan does: they have no
   * gradient, but count.
   * @default false
   */
  readonly clampLogRatio?: boolean
  /** Weight of the entropy bonus; needs `entropy` if above 0. @default 0 */
  readonly entropyCoefficient?: number
  /**
   * Share of trained tokens, those of the highest entropy, that keep their policy term and entropy bonus
   * ([paper](https://arxiv.org/abs/2506.01939)), in `(0, 1]`; below 1 it needs `entropy`. All tokens count in
   * denominators and KL terms. The share is taken per batch: below 1, give whole batches.
   * @default 1
   */
  readonly topEntropyQuantile?: number
}

const ENVELOPE_KEYS = { k: true, lambda: true } as const
const OPTION_KEYS = {
  device: true,
  preset: true,
  ratio: true,
  surrogate: {
    cispo: { cap: true },
    sapo: { tauPositive: true, tauNegative: true },
    vespo: { positive: ENVELOPE_KEYS, negative: ENVELOPE_KEYS },
    dppo: { delta: true },
  },
  corrections: { level: true, rule: true, min: true, max: true },
  offPolicyThreshold: true,
  keepRejected: true,
  clipEpsilon: true,
  dualClip: true,
  normalization: { fixedLength: true, globalTokens: true, globalSequences: true },
  klToRef: KL_PENALTY_KEYS,
  klToInference: KL_PENALTY_KEYS,
  klMaskThreshold: true,
  logRatioMax: true,
  clampLogRatio: true,
  entropyCoefficient: true,
  topEntropyQuantile: true,
} as const

/**
 * `S` sequences one after another, `T` tokens in all: sequence `s` is `offsets[s]..offsets[s + 1]`. There is
 * no padding; values where the mask is 0 are never read. The arrays are read, not kept.
 */
export interface LossBatch {
  /** `[T]` log-probabilities under the policy in training. */
  readonly logProb: Float32Array
  /**
   * `[T]` log-probabilities under the policy that drew the tokens; on-policy the same array. A token with a
   * non-finite value is dropped and counted.
   */
  readonly oldLogProb: Float32Array
  /** `[T]` log-probabilities under a frozen reference. */
  readonly refLogProb?: Float32Array
  /**
   * `[T]` log-probabilities as the sampling program computed them, if they differ from `oldLogProb`. NaN for
   * a missing one: the ratio is 1, as in TRL, and the token is trained and counted (`numSamplerUnknown`). An
   * infinity throws.
   */
  readonly samplerLogProb?: Float32Array
  /** `[T]` entropies of the current distribution, in nats. */
  readonly entropy?: Float32Array
  /** `[S]` one value per sequence, or `[T]` one per token. */
  readonly advantage: Float32Array
  /** `[T]` 1 where the token is trained, else 0. */
  readonly mask: Uint8Array
  /** `[S + 1]` from 0 to `T`. */
  readonly offsets: Uint32Array
}

const COLUMNS = {
  needed: { logProb: 'Float32Array', oldLogProb: 'Float32Array', advantage: 'Float32Array', ...LAYOUT },
  optional: { refLogProb: 'Float32Array', samplerLogProb: 'Float32Array', entropy: 'Float32Array' },
} as const

/**
 * Computes the policy gradient of GRPO and its family: per trained token `-min(r A, clip(r) A)` with `r =
 * exp(logProb - oldLogProb)`, or another {@link Surrogate}, plus KL penalties, minus an entropy bonus, with
 * one denominator for all. {@link GRPOPreset} lists the family with its papers; `docs/losses.md` compares
 * them.
 *
 * Metrics: the terms in use, of `policyLoss`, `klToRefLoss`, `klToInferenceLoss`, `entropyLoss`;
 * `clipFraction` (ratio outside the range), `clipFractionLow` and `clipFractionHigh` (and so without
 * gradient), `dualClipFraction`, `kl`, `klApprox`, `klToRef`, `klToInference`, `entropy`, `ratioMean`,
 * `ratioMax`, `ess` (effective sample size, 1 on-policy), `samplerRatioMean`, `samplerRatioMax` (which clamp
 * a ratio to e^80), `samplerLogRatioAbs`, `samplerKl` (k3, from the sampler to the old policy), `correctionMean`,
 * `correctionMax`, `correctionFraction` (tokens whose ratio was truncated), `numSamplerUnknown`, `numRejected`,
 * `numTokens`, `numSequences`, `numNonFinite`, `numExtremeRatio`, `numKlMasked`, `numHighEntropy`.
 *
 * @example
 * ```ts
 * import { GRPOLoss } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const logProb = Float32Array.of(-1, -0.5, -2)
 * const { loss, metrics, gradLogProb } = new GRPOLoss({ clipEpsilon: 0.2 }).forward({
 *   logProb,
 *   oldLogProb: logProb, // on-policy: every ratio is 1
 *   advantage: Float32Array.of(1, -1),
 *   mask: Uint8Array.of(0, 1, 1),
 *   offsets: Uint32Array.of(0, 2, 3),
 * })
 * assert.equal(loss, 0)
 * assert.equal(metrics.ratioMean, 1)
 * assert.deepEqual([...gradLogProb], [0, -0.5, 0.5])
 *
 * const gspo = new GRPOLoss({ preset: 'gspo', clipEpsilon: 0.2 }) // the ratio of the sequence, wider bounds than the paper's
 * assert.equal(
 *   gspo.forward({
 *     logProb: Float32Array.of(-1, -1),
 *     oldLogProb: Float32Array.of(-2, -2), // e times likelier than before
 *     advantage: Float32Array.of(1),
 *     mask: Uint8Array.of(1, 1),
 *     offsets: Uint32Array.of(0, 2),
 *   }).loss,
 *   -1.2,
 * )
 * ```
 */
export class GRPOLoss {
  readonly #loss: CoreLoss<RawGrpoLoss>

  /**
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown key, with the nearest one; `OUT_OF_RANGE` for a value outside its
   * range; `MALFORMED` for one of another type.
   */
  constructor(options: GRPOLossOptions = {}) {
    const json = optionsJson('GRPOLoss', options, OPTION_KEYS)
    this.#loss = new CoreLoss('GRPOLoss', () => raw.GrpoLoss.create(json))
  }

  /**
   * Computes value, metrics and gradient over `batch`. Costs O(T); equal inputs give equal bits on every
   * backend.
   *
   * @throws {FulmarError} `SHAPE_MISMATCH` if two lengths disagree; `EMPTY` if a term lacks its input, or no
   * token is trained (with `globalTokens` and `globalSequences` the loss and the gradient are 0 instead);
   * `NON_FINITE` if a trained position holds a NaN or an infinity, or if a result overflows; `OUT_OF_RANGE`
   * for decreasing offsets or a mask that is not 0 or 1; `MALFORMED` for an array of another type.
   */
  forward(batch: LossBatch): GRPOLossOutput {
    checkColumns(batch, COLUMNS)
    const { logProb, oldLogProb, refLogProb, samplerLogProb, entropy, advantage, mask, offsets } = batch
    return this.#loss.result((loss) =>
      loss.forward(logProb, oldLogProb, refLogProb, samplerLogProb, entropy, advantage, mask, offsets),
    )
  }
}
