/** Transitions over several steps. */

import type { TensorKey } from '../tensor/index.js'
import { rawTransform, Transform, type TransformKeys } from './transform.js'

/** Options of {@link MultiStep} and `MultiStepTransform`. */
export interface MultiStepOptions {
  /** The most steps of a transition, from 1. */
  readonly nSteps: number
  /** The discount of a step, more than 0 and at most 1. */
  readonly gamma: number
  /** The rewards, below `next`; what they were goes to the same name behind `original_`. @default ['reward'] */
  readonly rewardKeys?: TransformKeys
  /** Key of the end of a trajectory, below `next`. @default 'done' */
  readonly doneKey?: TensorKey
  /** Further ends, below `next`; only `legacyDone` asks for them. @default ['terminated', 'truncated'] */
  readonly doneKeys?: TransformKeys
  /** Bools that are false at padding; need not be there. @default ['collector', 'mask'] */
  readonly maskKey?: TensorKey
  /**
   * If true, each step keeps its own end flags, as in TorchRL, instead of those of its last step.
   * @default false
   */
  readonly legacyDone?: boolean
}

/**
 * Makes transitions over `nSteps` steps of whole sequences that are read, time being the last batch dimension: the reward is
 * the discounted sum, `next` is that of the last step, which is at most the end of the trajectory. Adds
 * `steps_to_next_obs`, the steps that it took; `gamma`, the discount to that power; and `nonterminal`.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { MultiStep } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * using twoSteps = new MultiStep({ nSteps: 2, gamma: 0.5 })
 * const steps = TensorDict.from({}, { batchSize: [3] })
 *   .set(['next', 'observation'], Tensor.from([1, 2, 3]))
 *   .set(['next', 'reward'], Tensor.from([1, 1, 1]))
 *   .set(['next', 'done'], Tensor.from(Uint8Array.of(0, 1, 0), { dtype: 'bool' }))
 * const stepped = twoSteps.forward(steps)
 * assert.deepEqual(stepped.tensor(['next', 'reward']).data, Float32Array.of(1.5, 1, 1))
 * assert.deepEqual(stepped.tensor(['next', 'observation']).data, Float32Array.of(2, 2, 3))
 * assert.deepEqual(stepped.tensor('steps_to_next_obs').data, BigInt64Array.of(2n, 1n, 1n))
 * ```
 */
export class MultiStep extends Transform {
  /**
   * @throws {FulmarError} `OUT_OF_RANGE` if `nSteps` is 0, or `gamma` not more than 0 and at most 1; `MALFORMED` without them.
   *   `forward`: `SHAPE_MISMATCH` without a batch dimension; `UNKNOWN_NAME` without rewards or ends.
   */
  constructor(options: MultiStepOptions) {
    super(() => rawTransform('MultiStep', options))
  }
}

/**
 * {@link MultiStep} over all written items; time is the last batch dimension. The last `nSteps` steps are held back until
 * the next steps are written, or until `flush`.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { MultiStepTransform } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * using twoSteps = new MultiStepTransform({ nSteps: 2, gamma: 1 })
 * const steps = TensorDict.from({}, { batchSize: [3] })
 *   .set(['next', 'reward'], Tensor.from([1, 2, 4]))
 *   .set(['next', 'done'], Tensor.from(new Uint8Array(3), { dtype: 'bool' }))
 * assert.deepEqual(twoSteps.inverse(steps)?.tensor(['next', 'reward']).data, Float32Array.of(3))
 * assert.deepEqual(twoSteps.flush()?.tensor(['next', 'reward']).data, Float32Array.of(6, 4))
 * assert.equal(twoSteps.flush(), undefined)
 * ```
 */
export class MultiStepTransform extends Transform {
  /**
   * @throws {FulmarError} The errors of {@link MultiStep}. `inverse`: also `SHAPE_MISMATCH`, `UNKNOWN_NAME` or `INCOMPATIBLE` if
   *   items do not fit those that are held.
   */
  constructor(options: MultiStepOptions) {
    super(() => rawTransform('MultiStepTransform', options))
  }
}
