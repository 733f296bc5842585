/** A penalty for leaving a reference model, taken off the reward. */

import { checkKnownKeys, FulmarError } from '../../core/index.js'
import { type KlEstimator, klReward } from '../../objective/index.js'
import type { TensorDict, TensorKey } from '../../tensor/index.js'
import type { EnvSpecs } from './env.js'
import { floatRowsAt, setFloatRows } from './log-prob-rows.js'
import { changedSpecs, type EnvTransform, type EnvView } from './transformed-env.js'

/** Options of a KL penalty in the reward. */
export interface KlPenaltyOptions {
  /** Key of the estimates. @default 'kl_penalty' */
  readonly klKey?: TensorKey
  /** If true, subtracts the penalty from `reward`, which then has one number per token. @default true */
  readonly addToReward?: boolean
  /** The factor of the estimates, at least 0. @default 1 */
  readonly coeff?: number
  /** @default 'k1' */
  readonly estimator?: KlEstimator
  /**
   * Tokens that get the reward itself: the last one, so that a sequence earns it once, or each, as in TorchRL, which multiplies it
   * with the length.
   * @default 'lastToken'
   */
  readonly place?: 'lastToken' | 'everyToken'
}

/** The names of {@link KlPenaltyOptions}. */
export const KL_PENALTY_KEYS = ['klKey', 'addToReward', 'coeff', 'estimator', 'place'] as const

/** Options of {@link KLComputation}. */
export interface KLComputationOptions extends KlPenaltyOptions {
  /** The policy's log-probabilities, in `next`. @default ['log_probs', 'full'] */
  readonly genLogProbsFullKey?: TensorKey
  /** The reference's, in `next`. @default ['ref_log_probs', 'full'] */
  readonly refLogProbsFullKey?: TensorKey
}

/**
 * Estimates the KL divergence at each token of `next` and takes it off the reward: `r_t - coeff k_t`, with `d = log p_ref - log p` and `k_t` of
 * `-d` (k1), `d^2 / 2` (k2) or `e^d - 1 - d` (k3), see J. Schulman, "Approximating KL divergence", <http://joschu.net/blog/kl-approx.html>; a
 * penalty on the reward keeps a policy near its reference since <https://arxiv.org/abs/1909.08593>. Tokens that do not count are 0 on both
 * sides, and so is their estimate.
 *
 * @example
 * ```ts
 * import { Ragged, Tensor, TensorDict } from 'fulmar/tensor'
 * import { KLComputation } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const rows = (...all: number[][]) => Ragged.fromRows(all.map((row) => Tensor.from(row)))
 * const next = TensorDict.from({ reward: Tensor.from([1, 0], { shape: [2, 1, 1] }) }, { batchSize: [2] })
 *   .set(['log_probs', 'full'], rows([-1, -2], [-1, -2, -3]))
 *   .set(['ref_log_probs', 'full'], rows([-1.5, -1], [-1.5, -1, -1]))
 * const penalised = new KLComputation({ coeff: 0.5 }).afterStep(next)
 * assert.deepEqual(penalised.ragged('kl_penalty').row(1).data, Float32Array.of(0.5, -1, -2))
 * assert.deepEqual(penalised.ragged('reward').row(0).data, Float32Array.of(-0.25, 1.5))
 * ```
 */
export class KLComputation implements EnvTransform {
  readonly #options: Required<KLComputationOptions>

  /** @throws {FulmarError} `INCOMPATIBLE` if both keys are one; `OUT_OF_RANGE` for a negative factor; `UNKNOWN_NAME` for an unknown option. */
  constructor(options: KLComputationOptions = {}) {
    checkKnownKeys('options', options, ['genLogProbsFullKey', 'refLogProbsFullKey', ...KL_PENALTY_KEYS])
    this.#options = {
      genLogProbsFullKey: ['log_probs', 'full'],
      refLogProbsFullKey: ['ref_log_probs', 'full'],
      klKey: 'kl_penalty',
      addToReward: true,
      coeff: 1,
      estimator: 'k1',
      place: 'lastToken',
      ...options,
    }
    const { genLogProbsFullKey: gen, refLogProbsFullKey: ref, coeff } = this.#options
    if (JSON.stringify(gen) === JSON.stringify(ref)) {
      throw new FulmarError(
        'INCOMPATIBLE',
        `refLogProbsFullKey must be another key: got ${JSON.stringify(ref)} for both`,
      )
    }
    if (!(Number.isFinite(coeff) && coeff >= 0)) {
      throw new FulmarError('OUT_OF_RANGE', `coeff must be finite and >= 0: got ${coeff}`)
    }
  }

  /**
   * @throws {FulmarError} `UNKNOWN_NAME` if log-probabilities or a reward to change are missing; `SHAPE_MISMATCH` if they are of unequal
   * length, or there is more than one reward; `NON_FINITE` for a NaN.
   */
  afterStep(next: TensorDict): TensorDict {
    const { klKey, addToReward, coeff, estimator, place } = this.#options
    const [gen, ref] = [this.#rows(next, 'genLogProbsFullKey'), this.#rows(next, 'refLogProbsFullKey')]
    for (const [at, row] of gen.entries()) {
      const got = ref[at]?.length
      if (got === row.length) continue
      throw new FulmarError(
        'SHAPE_MISMATCH',
        `log-probs of element ${at} must be ${row.length} in both: got ${got}`,
      )
    }
    const offsets = Uint32Array.of(0, ...gen.map((row) => row.length))
    for (const at of gen.keys()) offsets[at + 1] = (offsets[at + 1] ?? 0) + (offsets[at] ?? 0)
    const [logProb, refLogProb] = [flat(gen), flat(ref)]
    const { kl, reward } = klReward({
      logProb,
      refLogProb,
      mask: new Uint8Array(logProb.length).fill(1),
      offsets,
      reward: addToReward ? rewardsOf(next) : new Float32Array(gen.length),
      coefficient: coeff,
      estimator,
      place,
    })
    const rows = (values: Float32Array) => gen.map((_, at) => values.slice(offsets[at], offsets[at + 1]))
    // Nothing minus nothing is -0 in some estimates.
    setFloatRows(next, klKey, rows(kl.map((value) => value + 0)))
    return addToReward ? setFloatRows(next, 'reward', rows(reward)) : next
  }

  transformSpecs(env: EnvView): EnvSpecs {
    const { klKey, addToReward } = this.#options
    if (addToReward && !env.rewardSpec.has('reward')) {
      throw new FulmarError(
        'INCOMPATIBLE',
        'env must have a reward that a penalty can be taken off: there is none',
      )
    }
    return changedSpecs(env, ({ observationSpec, rewardSpec }) => {
      observationSpec.set(klKey, null)
      if (addToReward) rewardSpec.set('reward', null)
    })
  }

  #rows(next: TensorDict, name: 'genLogProbsFullKey' | 'refLogProbsFullKey'): Float32Array[] {
    const rows = floatRowsAt(next, this.#options[name])
    if (rows) return rows
    const detail = `${name} must be a key of next: got ${JSON.stringify(this.#options[name])} in none of ${next.keys()}`
    throw new FulmarError('UNKNOWN_NAME', detail)
  }
}

/** The only reward of each element. */
function rewardsOf(next: TensorDict): Float32Array {
  const rows = floatRowsAt(next, 'reward')
  if (rows === undefined) throw new FulmarError('UNKNOWN_NAME', 'reward must be in next: there is none')
  return Float32Array.from(rows, ([reward = 0, ...more]) => {
    if (more.length === 0) return reward
    throw new FulmarError('SHAPE_MISMATCH', `reward must be one number an element: got ${more.length + 1}`)
  })
}

function flat(rows: readonly Float32Array[]): Float32Array {
  const joined = new Float32Array(rows.reduce((sum, row) => sum + row.length, 0))
  let at = 0
  for (const row of rows) {
    joined.set(row, at)
    at += row.length
  }
  return joined
}
