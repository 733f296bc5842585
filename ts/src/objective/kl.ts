/** Estimates of the KL divergence between a policy and a reference. */

import {
  call,
  checkGiven,
  checkKnownKeys,
  FulmarError,
  numbersOf,
  type OnDevice,
  placeOnCpu,
} from '../core/index.js'
import { type RawKlController, raw } from '../native/index.js'
import { checkArray, optionsJson } from './argument.js'
import type { KlEstimator } from './loss.js'

/** Options of {@link klEstimate}. */
export interface KlEstimateOptions extends OnDevice {
  /** `[T]` log-probabilities under the policy of tokens that it drew. */
  readonly logProb: Float32Array
  /** `[T]` log-probabilities under the reference. */
  readonly refLogProb: Float32Array
  /** `[T]` 1 where the token counts, else 0; values at a 0 are not read. */
  readonly mask: Uint8Array
  /** Estimator of the divergence. @default 'k3' */
  readonly estimator?: KlEstimator
}

/** A KL divergence over masked tokens. */
export interface KlEstimateResult {
  /** Mean over the masked tokens, in nats; 0 without masked tokens. */
  readonly mean: number
  /** Number of masked tokens. */
  readonly numTokens: number
  /** `[T]` estimate at each token, 0 off the mask. */
  readonly kl: Float32Array
  /** `[T]` gradient of `mean` with respect to `logProb`, 0 off the mask. */
  readonly gradLogProb: Float32Array
}

/**
 * Estimates `KL(policy || reference)` from tokens that the policy drew.
 *
 * @throws {FulmarError} `SHAPE_MISMATCH` for unequal lengths; `NON_FINITE` for a NaN or an infinity where the mask is 1;
 * `OUT_OF_RANGE` for a mask that is not 0 or 1; `UNKNOWN_NAME` for an unknown key or estimator; `MALFORMED` for an
 * array of another type.
 *
 * @example
 * ```ts
 * import { klEstimate } from 'fulmar/objective'
 * import assert from 'node:assert/strict'
 *
 * const { mean, numTokens } = klEstimate({
 *   logProb: Float32Array.of(-1, -2, Number.NaN),
 *   refLogProb: Float32Array.of(-1.5, -1, 0),
 *   mask: Uint8Array.of(1, 1, 0),
 *   estimator: 'k1',
 * })
 * assert.deepEqual([mean, numTokens], [-0.25, 2])
 * ```
 */
export function klEstimate(options: KlEstimateOptions): KlEstimateResult {
  checkKnownKeys('klEstimate', options, ['logProb', 'refLogProb', 'mask', 'estimator', 'device'])
  checkArray(options, 'logProb', 'Float32Array')
  checkArray(options, 'refLogProb', 'Float32Array')
  checkArray(options, 'mask', 'Uint8Array')
  const { logProb, refLogProb, mask, estimator, device } = options
  const place = placeOnCpu(device)
  const result = call(() => raw.klEstimate(JSON.stringify(estimator), logProb, refLogProb, mask, place))
  return { mean: result.mean, numTokens: result.numTokens, kl: result.kl, gradLogProb: result.gradLogProb }
}

/** Options of {@link klReward}. */
export interface KlRewardOptions extends OnDevice {
  /** `[T]` log-probabilities under the policy of tokens that it drew. */
  readonly logProb: Float32Array
  /** `[T]` log-probabilities under the reference. */
  readonly refLogProb: Float32Array
  /** `[T]` 1 where the token counts, else 0. */
  readonly mask: Uint8Array
  /** `[S + 1]` bounds of the sequences. */
  readonly offsets: Uint32Array
  /** `[S]` one value per sequence, or `[T]` one per token, which keeps its position. */
  readonly reward: Float32Array
  /** Factor of the estimate, at least 0. @default 1 */
  readonly coefficient?: number
  /** Estimator of the divergence. @default 'k1' */
  readonly estimator?: KlEstimator
  /**
   * Position of the reward of a sequence: its last masked token, or every token, as in TorchRL. Not with
   * rewards of tokens.
   * @default 'lastToken'
   */
  readonly place?: 'lastToken' | 'everyToken'
}

/** Rewards of tokens, less a penalty for leaving the reference. */
export interface KlRewardResult {
  /** `[T]` estimate at each token, 0 off the mask. */
  readonly kl: Float32Array
  /** `[T]` rewards after the penalty. */
  readonly reward: Float32Array
}

const REWARD_KEYS = { device: true, coefficient: true, estimator: true, place: true } as const

/**
 * Subtracts the KL estimate of each masked token from its reward, `reward_t = placed reward - coefficient *
 * kl_t`, as in TorchRL's
 * `KLComputation` and `KLRewardTransform`. New arrays.
 *
 * @throws {FulmarError} `SHAPE_MISMATCH` for unequal lengths; `INCOMPATIBLE` for `place` with rewards of
 * tokens; `NON_FINITE` for a NaN or an infinity in a reward, or where the mask is 1;
 * another type.
 *
 * @example
 * ```ts
 * import { klReward } from 'fulmar/objective'
 * import assert from 'node:assert/strict'
 *
 * const { kl, reward } = klReward({
 *   logProb: Float32Array.of(-1, -2),
 *   refLogProb: Float32Array.of(-1.5, -1),
 *   mask: Uint8Array.of(1, 1),
 *   offsets: Uint32Array.of(0, 2),
 *   reward: Float32Array.of(1),
 *   coefficient: 0.5,
 * })
 * assert.deepEqual([[...kl], [...reward]], [[0.5, -1], [-0.25, 1.5]])
 * ```
 */
export function klReward(options: KlRewardOptions): KlRewardResult {
  checkGiven('options', options)
  const { logProb, refLogProb, mask, offsets, reward, ...rule } = options
  for (const name of ['logProb', 'refLogProb', 'reward']) checkArray(options, name, 'Float32Array')
  checkArray(options, 'mask', 'Uint8Array')
  checkArray(options, 'offsets', 'Uint32Array')
  const json = optionsJson('klReward', rule, REWARD_KEYS)
  const isPerToken = reward.length === logProb.length && reward.length !== offsets.length - 1
  if (rule.place !== undefined && isPerToken) {
    const got = `'${rule.place}' and ${reward.length} rewards for ${offsets.length - 1} sequences`
    throw new FulmarError('INCOMPATIBLE', `place must be left out with one reward per token: got ${got}`)
  }
  const both = call(() => raw.klReward(json, logProb, refLogProb, mask, offsets, reward))
  return { kl: both.slice(0, logProb.length), reward: both.slice(logProb.length) }
}

/** Options of {@link importanceWeights}. */
export interface ImportanceWeightsOptions extends OnDevice {
  /** `[T]` log-probabilities under the policy at the start of the update. */
  readonly oldLogProb: Float32Array
  /**
   * `[T]` log-probabilities as the sampling program computed them; NaN for a missing one, with the ratio 1,
   * as in `GRPOLoss`.
   */
  readonly samplerLogProb: Float32Array
  /** `[T]` 1 where the token counts, else 0. */
  readonly mask: Uint8Array
  /** `[S + 1]` bounds of the sequences. */
  readonly offsets: Uint32Array
  /** Level of the ratio. @default 'token' */
  readonly level?: 'token' | 'sequence' | 'geometric'
  /**
   * Clamps the ratio to the bounds, or rejects tokens outside; `veto` rejects whole sequences.
   * @default 'truncate'
   */
  readonly rule?: 'truncate' | 'mask' | 'veto'
  /** Lower bound. @default 0 */
  readonly min?: number
  /** Upper bound. @default 3 */
  readonly max?: number
}

/**
 * Computes the importance weight of each token if another program drew it than the one that computed
 * `oldLogProb`: 1 off the mask, 0 where rejected. `[T]`, a new array.
 *
 * @throws {FulmarError} The errors of {@link klReward}; `OUT_OF_RANGE` for invalid bounds.
 *
 * @example
 * ```ts
 * import { importanceWeights } from 'fulmar/objective'
 * import assert from 'node:assert/strict'
 *
 * const weights = importanceWeights({
 *   oldLogProb: Float32Array.of(-1, -1, -1),
 *   samplerLogProb: Float32Array.of(-1, -2, 0),
 *   mask: Uint8Array.of(1, 1, 0),
 *   offsets: Uint32Array.of(0, 3),
 *   max: 1.5,
 * })
 * assert.deepEqual([...weights], [1, 1.5, 1])
 * ```
 */
export function importanceWeights(options: ImportanceWeightsOptions): Float64Array {
  checkGiven('options', options)
  const { oldLogProb, samplerLogProb, mask, offsets, device, ...rule } = options
  for (const name of ['oldLogProb', 'samplerLogProb']) checkArray(options, name, 'Float32Array')
  checkArray(options, 'mask', 'Uint8Array')
  checkArray(options, 'offsets', 'Uint32Array')
  const json = optionsJson('importanceWeights', rule, { level: true, rule: true, min: true, max: true })
  const place = placeOnCpu(device)
  return call(() => raw.importanceWeights(json, oldLogProb, samplerLogProb, mask, offsets, place))
}

/** Options of {@link AdaptiveKLController}. */
export interface AdaptiveKLControllerOptions {
  /** Initial coefficient; above 0. */
  readonly initKlCoef: number
  /** Target divergence, in nats; above 0. */
  readonly target: number
  /** Number of values over which a change adds up; above 0. */
  readonly horizon: number
}

/**
 * Adapts a KL coefficient to the divergence: with `e = clamp(mean kl / target - 1, -0.2, 0.2)` it is
 * multiplied by `1 + e n / horizon` for `n` values (D. Ziegler and others,
 * <https://arxiv.org/abs/1909.08593>). Values are divergences in nats; TorchRL's class takes them times
 * `-coefficient`. Holds native memory: dispose it, or declare it with `using`.
 *
 * @example
 * ```ts
 * import { AdaptiveKLController } from 'fulmar/objective'
 * import assert from 'node:assert/strict'
 *
 * using controller = new AdaptiveKLController({ initKlCoef: 0.1, target: 6, horizon: 10_000 })
 * assert.ok(Math.abs(controller.update(Array(10).fill(1)) - 0.09998) < 1e-12)
 * ```
 */
export class AdaptiveKLController {
  readonly #raw: RawKlController

  /** @throws {FulmarError} `OUT_OF_RANGE` for a number that is not finite or not above 0. */
  constructor(options: AdaptiveKLControllerOptions) {
    checkKnownKeys('AdaptiveKLController', options, ['initKlCoef', 'target', 'horizon'])
    const { initKlCoef, target, horizon } = options
    this.#raw = call(() => raw.KlController.create(initKlCoef, target, horizon))
  }

  /** Current coefficient. */
  get coefficient(): number {
    return call(() => this.#raw.coefficient())
  }

  /**
   * Updates the coefficient by these divergences and returns it.
   * @throws {FulmarError} `EMPTY` without values; `NON_FINITE` for a NaN or an infinity; `OUT_OF_RANGE` for
   * far more than `horizon`.
   */
  update(kl: ArrayLike<number>): number {
    const values = numbersOf('kl', kl)
    return call(() => this.#raw.update(values))
  }

  /** Frees the native memory. */
  [Symbol.dispose](): void {
    this.#raw.free()
  }
}

/**
 * A constant KL coefficient, usable in place of an {@link AdaptiveKLController}.
 *
 * @example
 * ```ts
 * import { ConstantKLController } from 'fulmar/objective'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(new ConstantKLController({ klCoef: 0.1 }).update([5]), 0.1)
 * ```
 */
export class ConstantKLController {
  /** Current coefficient. */
  readonly coefficient: number

  constructor(options: { readonly klCoef: number }) {
    checkKnownKeys('ConstantKLController', options, ['klCoef'])
    this.coefficient = options.klCoef
  }

  /** Returns the coefficient unchanged. */
  update(_kl?: ArrayLike<number>): number {
    return this.coefficient
  }
}
