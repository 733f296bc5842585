/** Draws by priority. */

import { checkKnownKeys } from '../core/index.js'
import { Sampler } from './sampler.js'

/** Options of {@link PrioritizedSampler}. */
export interface PrioritizedSamplerOptions {
  /** Exponent of the priorities, >= 0; at 0 draws are uniform. @default 0.7 */
  readonly alpha?: number
  /** Exponent of the weights, >= 0; at 0 all are 1. @default 0.9 */
  readonly beta?: number
  /** Added to each priority, >= 0; at 0 a priority of 0 keeps batches from being drawn. @default 1e-8 */
  readonly eps?: number
  /**
   * If true, new items get the largest priority of the current rows, not of all rows ever written.
   * @default false
   */
  readonly maxPriorityWithinBuffer?: boolean
}

/** Options of priorities. */
export const PRIORITIES = ['alpha', 'beta', 'eps', 'maxPriorityWithinBuffer'] as const

/** A sampler whose exponents can be changed, by a schedule for example. */
export abstract class Weighted extends Sampler {
  /** Exponent of the priorities. Setting it costs O(rows); one of 0 has forgotten them: after it all count as 1. */
  get alpha(): number {
    return this.owner().parameter('alpha')
  }

  set alpha(value: number) {
    this.owner().setParameter('alpha', value)
  }

  /** Exponent of the weights. */
  get beta(): number {
    return this.owner().parameter('beta')
  }

  set beta(value: number) {
    this.owner().setParameter('beta', value)
  }
}

/**
 * Rows with replacement, in proportion to `(priority + eps) ^ alpha`, with weights `(leaf / smallest leaf) ^ -beta` at
 * `priority_weight` (Schaul et al., <https://arxiv.org/abs/1511.05952>). Costs O(log rows) a draw or update; every row with
 * a priority above 0 can be drawn, at any number of rows.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { LazyTensorStorage, PrioritizedSampler, ReplayBuffer } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const sampler = new PrioritizedSampler({ alpha: 1, beta: 0.4 })
 * const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10), sampler, seed: 1 })
 * buffer.extend(TensorDict.from({ id: Tensor.from([1, 2, 3]) }, { batchSize: [3] }))
 * buffer.updatePriority([0, 1, 2], [0, 0, 5])
 * assert.deepEqual(buffer.sample(2).tensor('id').data, Float32Array.of(3, 3))
 * ```
 */
export class PrioritizedSampler extends Weighted {
  constructor(options: PrioritizedSamplerOptions = {}) {
    checkKnownKeys('options', options, ['alpha', 'beta', 'eps', 'maxPriorityWithinBuffer'])
    super({ kind: 'prioritized', priorities: options })
  }
}
