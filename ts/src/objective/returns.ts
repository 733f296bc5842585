/**
 * Returns and advantages of recorded steps. Legend: `r` reward, `d` done (the trajectory ends here), `e`
 * terminated (no future), `V` value, `V'` value of the next observation, `V'_e = (1 - e) V'`. The last step
 * counts as done. Sums use doubles; no result has a gradient.
 */

import { call, checkGiven, checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import { type RawSteps, raw } from '../native/index.js'
import { Tensor, TensorDict } from '../tensor/index.js'
import { tensorAround } from '../tensor/tensor.js'
import { dictAround, withRawDict } from '../tensor/tensor-dict.js'

/** Recorded steps. All tensors have one shape, `[..., T, 1]`; numbers are all `f32` or all `f64`. */
export interface RewardSteps {
  /** Reward of each step. */
  readonly reward: Tensor
  /** Bools: true at the end of a trajectory, also by truncation. */
  readonly done: Tensor
  /** Time dimension; negative from the last. @default -2 */
  readonly timeDim?: number
}

/** Steps with the value of the next observation. */
export interface ValueSteps extends RewardSteps {
  /** Value of the observation after each step; not read where `terminated` is true. */
  readonly nextValue: Tensor
  /** Bools: true at the end of a trajectory that was not truncated. @default done */
  readonly terminated?: Tensor
  /** Discount, 0 to 1: one number, or one for each step. */
  readonly gamma: number | Tensor
}

/** Options of {@link td1ReturnEstimate}. */
export interface Td1Steps extends ValueSteps {
  /**
   * If true, a reward is discounted by the factors of the steps before it; else by powers of the factor of
   * the step whose return is computed. A single number needs true.
   * @default true
   */
  readonly rollingGamma?: boolean
}

/** Options of {@link tdLambdaReturnEstimate}. */
export interface TdLambdaSteps extends Td1Steps {
  /** Weight of longer returns, 0 to 1: one number, or one for each step. */
  readonly lambda: number | Tensor
}

/** Value of the observation before each step, for estimates of advantages. */
export interface OwnValue {
  readonly value: Tensor
}

/** Options of {@link generalizedAdvantageEstimate}. */
export interface GeneralizedAdvantageSteps extends ValueSteps, OwnValue {
  /** Weight of longer sums of temporal differences, 0 to 1: one number, or one for each step. */
  readonly lambda: number | Tensor
}

/** Options of {@link vtraceAdvantageEstimate}. */
export interface VtraceSteps extends ValueSteps, OwnValue {
  /** Log-probability of each action under the policy in training. */
  readonly logPi: Tensor
  /** Log-probability of each action under the policy that took it. */
  readonly logMu: Tensor
  /** Maximum weight of a temporal difference. @default 1 */
  readonly rhoMax?: number
  /** Maximum weight of the steps after it. @default 1 */
  readonly cMax?: number
}

/** Tensors of the shape and dtype of the rewards. */
export interface ValueEstimate {
  /** Advantage of each step. */
  readonly advantage: Tensor
  /** Target of the value of each step's observation. */
  readonly target: Tensor
}

const REWARD_KEYS = ['reward', 'done', 'timeDim']
const VALUE_KEYS = [...REWARD_KEYS, 'nextValue', 'terminated', 'gamma']
/** Options that are not tensors. */
const NUMBER_KEYS = ['timeDim', 'rollingGamma', 'rhoMax', 'cMax']

/**
 * Generalized advantage estimation (J. Schulman and others, <https://arxiv.org/abs/1506.02438>):
 * `A_t = r_t + gamma V'_e - V_t + gamma lambda (1 - d_t) A_{t+1}`, target `A_t + V_t`. O(steps).
 *
 * @throws {FulmarError} `SHAPE_MISMATCH` if shapes differ; `INCOMPATIBLE` for other dtypes; `OUT_OF_RANGE` if a factor is not in 0 to
 *   1 or there is no such `timeDim`; `NON_FINITE` if a result would be; `UNKNOWN_NAME` for an unknown key; `MALFORMED` for a value of
 *   another type.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar'
 * import { generalizedAdvantageEstimate } from 'fulmar/returns'
 * import assert from 'node:assert/strict'
 *
 * const column = (...values: number[]) => Tensor.from(values, { shape: [1, 2, 1] }) // one trajectory of two steps
 * const { advantage, target } = generalizedAdvantageEstimate({
 *   reward: column(1, 1),
 *   value: column(1, 2),
 *   nextValue: column(2, 0),
 *   done: Tensor.from(Uint8Array.of(0, 1), { shape: [1, 2, 1], dtype: 'bool' }),
 *   gamma: 0.5,
 *   lambda: 0.5,
 * })
 * assert.deepEqual([advantage.shape, advantage.data], [[1, 2, 1], Float32Array.of(0.75, -1)])
 * assert.deepEqual(target.data, Float32Array.of(1.75, 1))
 * ```
 */
export function generalizedAdvantageEstimate(options: GeneralizedAdvantageSteps): ValueEstimate {
  checkGiven('options', options)
  const { gamma, lambda } = options
  return both(options, ['value', 'lambda'], (steps) => steps.gae(numberOf(gamma), numberOf(lambda)))
}

/**
 * V-trace (L. Espeholt and others, <https://arxiv.org/abs/1802.01561>), for steps that an older policy took: with
 * `rho_t = min(rhoMax, pi / mu)` and `c_t = min(cMax, pi / mu)`, `x_t = rho_t (r_t + gamma V'_e - V_t) + gamma c_t (1 - d_t) x_{t+1}`,
 * target `v_t = x_t + V_t`, advantage `rho_t (r_t + gamma v_{t+1} - V_t)` with `V'_e` for `v_{t+1}` where a trajectory ends. O(steps).
 *
 * @throws {FulmarError} The errors of {@link generalizedAdvantageEstimate}; `OUT_OF_RANGE` if a bound is negative; `NON_FINITE` for a log-prob too.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar'
 * import { vtraceAdvantageEstimate } from 'fulmar/returns'
 * import assert from 'node:assert/strict'
 *
 * const column = (...values: number[]) => Tensor.from(values, { shape: [1, 2, 1] })
 * const { advantage, target } = vtraceAdvantageEstimate({
 *   reward: column(1, 1),
 *   value: column(1, 2),
 *   nextValue: column(2, 0),
 *   done: Tensor.from(Uint8Array.of(0, 1), { shape: [1, 2, 1], dtype: 'bool' }),
 *   logPi: column(-1, -1),
 *   logMu: column(-1, -1),
 *   gamma: 0.5,
 * })
 * assert.deepEqual([advantage.data, target.data], [Float32Array.of(0.5, -1), Float32Array.of(1.5, 1)])
 * ```
 */
export function vtraceAdvantageEstimate(options: VtraceSteps): ValueEstimate {
  checkGiven('options', options)
  const { gamma, rhoMax, cMax } = options
  const bounds = JSON.stringify({ rhoMax, cMax })
  return both(options, ['value', 'logPi', 'logMu', 'rhoMax', 'cMax'], (steps) =>
    steps.vtrace(numberOf(gamma), bounds),
  )
}

/**
 * TD(0): one reward and the discounted value of the next observation, `G_t = r_t + gamma V'_e`. Has the shape
 * of the rewards.
 * R. Sutton and A. Barto, "Reinforcement Learning", chapter 6.
 *
 * @throws {FulmarError} The errors of {@link generalizedAdvantageEstimate}.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar'
 * import { td0ReturnEstimate } from 'fulmar/returns'
 * import assert from 'node:assert/strict'
 *
 * const column = (...values: number[]) => Tensor.from(values, { shape: [2, 1] })
 * const done = Tensor.from(Uint8Array.of(0, 1), { shape: [2, 1], dtype: 'bool' })
 * const returns = td0ReturnEstimate({ reward: column(1, 1), nextValue: column(4, 8), done, gamma: 0.5 })
 * assert.deepEqual(returns.data, Float32Array.of(3, 1))
 * ```
 */
export function td0ReturnEstimate(options: ValueSteps): Tensor {
  return one(options, [], (steps) => steps.td0Return(numberOf(options.gamma)))
}

/**
 * Computes {@link td0ReturnEstimate} less the value of the observation before each step.
 * @throws {FulmarError} The errors of {@link generalizedAdvantageEstimate}.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar'
 * import { td0AdvantageEstimate } from 'fulmar/returns'
 * import assert from 'node:assert/strict'
 *
 * const column = (...values: number[]) => Tensor.from(values, { shape: [2, 1] })
 * const done = Tensor.from(Uint8Array.of(0, 1), { shape: [2, 1], dtype: 'bool' })
 * const steps = { reward: column(1, 1), value: column(1, 2), nextValue: column(4, 8), done, gamma: 0.5 }
 * assert.deepEqual(td0AdvantageEstimate(steps).data, Float32Array.of(2, -1))
 * ```
 */
export function td0AdvantageEstimate(options: ValueSteps & OwnValue): Tensor {
  return one(options, ['value'], (steps) => steps.td0Advantage(numberOf(options.gamma)))
}

/**
 * TD(1): all rewards to the end of the trajectory and the value after it, `G_t = r_t + gamma (d_t ? V'_e :
 * G_{t+1})`. Has the shape of the rewards. R. Sutton and A. Barto, chapter 12.
 *
 * @throws {FulmarError} The errors of {@link generalizedAdvantageEstimate}; `OUT_OF_RANGE` for `rollingGamma: false` with one number.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar'
 * import { td1ReturnEstimate } from 'fulmar/returns'
 * import assert from 'node:assert/strict'
 *
 * const column = (...values: number[]) => Tensor.from(values, { shape: [2, 1] })
 * const done = Tensor.zeros('bool', [2, 1])
 * const returns = td1ReturnEstimate({ reward: column(1, 1), nextValue: column(9, 8), done, gamma: 0.5 })
 * assert.deepEqual(returns.data, Float32Array.of(3.5, 5))
 * ```
 */
export function td1ReturnEstimate(options: Td1Steps): Tensor {
  checkGiven('options', options)
  const { gamma, rollingGamma } = options
  return one(options, ['rollingGamma'], (steps) => steps.td1Return(numberOf(gamma), rollingGamma))
}

/**
 * Computes {@link td1ReturnEstimate} less the value of the observation before each step.
 * @throws {FulmarError} The errors of {@link td1ReturnEstimate}.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar'
 * import { td1AdvantageEstimate } from 'fulmar/returns'
 * import assert from 'node:assert/strict'
 *
 * const column = (...values: number[]) => Tensor.from(values, { shape: [2, 1] })
 * const done = Tensor.zeros('bool', [2, 1])
 * const steps = { reward: column(1, 1), value: column(1, 2), nextValue: column(9, 8), done, gamma: 0.5 }
 * assert.deepEqual(td1AdvantageEstimate(steps).data, Float32Array.of(2.5, 3))
 * ```
 */
export function td1AdvantageEstimate(options: Td1Steps & OwnValue): Tensor {
  checkGiven('options', options)
  const { gamma, rollingGamma } = options
  return one(options, ['value', 'rollingGamma'], (steps) => steps.td1Advantage(numberOf(gamma), rollingGamma))
}

/**
 * TD(lambda): the returns of all lengths, weighted by powers of `lambda`; 0 gives TD(0), 1 gives TD(1):
 * `G_t = r_t + gamma ((1 - lambda) V'_e + lambda (d_t ? V'_e : G_{t+1}))`. Has the shape of the rewards. R. Sutton and A. Barto,
 * chapter 12. O(steps); without `rollingGamma` each step takes a pass to the end of its trajectory.
 *
 * @throws {FulmarError} The errors of {@link td1ReturnEstimate}.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar'
 * import { tdLambdaReturnEstimate } from 'fulmar/returns'
 * import assert from 'node:assert/strict'
 *
 * const column = (...values: number[]) => Tensor.from(values, { shape: [2, 1] })
 * const done = Tensor.zeros('bool', [2, 1])
 * const steps = { reward: column(1, 1), nextValue: column(4, 8), done, gamma: 0.5 }
 * assert.deepEqual(tdLambdaReturnEstimate({ ...steps, lambda: 0.5 }).data, Float32Array.of(3.25, 5))
 * ```
 */
export function tdLambdaReturnEstimate(options: TdLambdaSteps): Tensor {
  checkGiven('options', options)
  const { gamma, lambda, rollingGamma } = options
  return one(options, ['lambda', 'rollingGamma'], (steps) =>
    steps.tdLambdaReturn(numberOf(gamma), numberOf(lambda), rollingGamma),
  )
}

/**
 * Computes {@link tdLambdaReturnEstimate} less the value of the observation before each step.
 * @throws {FulmarError} The errors of {@link td1ReturnEstimate}.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar'
 * import { tdLambdaAdvantageEstimate } from 'fulmar/returns'
 * import assert from 'node:assert/strict'
 *
 * const column = (...values: number[]) => Tensor.from(values, { shape: [2, 1] })
 * const done = Tensor.zeros('bool', [2, 1])
 * const steps = { reward: column(1, 1), value: column(1, 2), nextValue: column(4, 8), done, gamma: 0.5 }
 * assert.deepEqual(tdLambdaAdvantageEstimate({ ...steps, lambda: 0.5 }).data, Float32Array.of(2.25, 3))
 * ```
 */
export function tdLambdaAdvantageEstimate(options: TdLambdaSteps & OwnValue): Tensor {
  checkGiven('options', options)
  const { gamma, lambda, rollingGamma } = options
  return one(options, ['value', 'lambda', 'rollingGamma'], (steps) =>
    steps.tdLambdaAdvantage(numberOf(gamma), numberOf(lambda), rollingGamma),
  )
}

/**
 * Sums the discounted rewards from each step to the end of its trajectory, `G_t = r_t + gamma (1 - d_t)
 * G_{t+1}`. Has the shape of the rewards, `[..., T, 1]`.
 *
 * @throws {FulmarError} The errors of {@link generalizedAdvantageEstimate}.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar'
 * import { reward2go } from 'fulmar/returns'
 * import assert from 'node:assert/strict'
 *
 * const reward = Tensor.from([1, 1, 1], { shape: [3, 1] })
 * const done = Tensor.from(Uint8Array.of(0, 1, 0), { shape: [3, 1], dtype: 'bool' })
 * assert.deepEqual(reward2go({ reward, done, gamma: 0.5 }).data, Float32Array.of(1.5, 1, 1))
 * ```
 */
export function reward2go(options: RewardSteps & { readonly gamma: number }): Tensor {
  return tensorAround(() =>
    withSteps(options, [...REWARD_KEYS, 'gamma'], (steps) => steps.rewardToGo(options.gamma)),
  )
}

function both(
  options: ValueSteps,
  others: readonly string[],
  ask: (steps: RawSteps) => ReturnType<RawSteps['gae']>,
): ValueEstimate {
  const dict = dictAround(() => withSteps(options, [...VALUE_KEYS, ...others], ask))
  try {
    return { advantage: dict.tensor('advantage'), target: dict.tensor('target') }
  } finally {
    dict[Symbol.dispose]()
  }
}

function one(
  options: ValueSteps,
  others: readonly string[],
  ask: (steps: RawSteps) => ReturnType<RawSteps['td0Return']>,
): Tensor {
  return tensorAround(() => withSteps(options, [...VALUE_KEYS, ...others], ask))
}

function withSteps<R>(options: RewardSteps, known: readonly string[], ask: (steps: RawSteps) => R): R {
  checkKnownKeys('options', options, known)
  const columns = columnsOf(options)
  const { reward, timeDim } = options
  if (timeDim !== undefined && !Number.isInteger(timeDim)) {
    throw new FulmarError('OUT_OF_RANGE', `timeDim must be an integer: got ${timeDim}`)
  }
  const dict = TensorDict.from(columns, { batchSize: reward.shape })
  try {
    const steps = withRawDict(dict, (rawDict) => raw.Steps.create(rawDict, timeDim))
    try {
      return call(() => ask(steps))
    } finally {
      steps.free()
    }
  } finally {
    dict[Symbol.dispose]()
  }
}

/** Returns the options that are tensors. @throws {FulmarError} `MALFORMED` for another value. */
function columnsOf(options: object): Record<string, Tensor> {
  const columns: Record<string, Tensor> = {}
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined || NUMBER_KEYS.includes(name)) continue
    if (value instanceof Tensor) columns[name] = value
    else if (typeof value !== 'number' || !['gamma', 'lambda'].includes(name)) {
      throw new FulmarError('MALFORMED', `${name} must be a tensor: got ${describeValue(value)}`)
    }
  }
  if ('reward' in columns) return columns
  throw new FulmarError('MALFORMED', 'reward must be a tensor: it is undefined')
}

/** Returns the number; nothing for a column. */
const numberOf = (factor: number | Tensor): number | undefined =>
  typeof factor === 'number' ? factor : undefined
