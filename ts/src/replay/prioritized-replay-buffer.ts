/** Buffers with a prioritised sampler. */

import { PrioritizedSampler, type PrioritizedSamplerOptions } from './prioritized-sampler.js'
import { ReplayBuffer } from './replay-buffer.js'
import type { ReplayBufferOptions } from './replay-buffer-options.js'
import { type AttachOptions, attachBuffer, type ReplayBufferToken } from './replay-buffer-token.js'
import { TensorDictReplayBuffer, type TensorDictReplayBufferOptions } from './tensor-dict-replay-buffer.js'

/** Options of {@link PrioritizedReplayBuffer}. */
export interface PrioritizedReplayBufferOptions
  extends Omit<ReplayBufferOptions, 'sampler'>,
    PrioritizedSamplerOptions {}

/**
 * A {@link ReplayBuffer} with a {@link PrioritizedSampler}.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { LazyTensorStorage, PrioritizedReplayBuffer } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const buffer = new PrioritizedReplayBuffer({ storage: new LazyTensorStorage(10), alpha: 0.7, beta: 0.9 })
 * buffer.extend(TensorDict.from({ id: Tensor.from([1, 2]) }, { batchSize: [2] }))
 * assert.deepEqual(buffer.sampleWithInfo(2).info.tensor('priority_weight').data, Float32Array.of(1, 1))
 * ```
 */
export class PrioritizedReplayBuffer extends ReplayBuffer {
  /** @internal */
  static override readonly kind: string | undefined = 'PrioritizedReplayBuffer'
  constructor(options: PrioritizedReplayBufferOptions = {}) {
    const [priorities, rest] = prioritiesOf(options)
    super({ ...rest, sampler: new PrioritizedSampler(priorities) })
  }

  static override attach(token: ReplayBufferToken, options: AttachOptions = {}): PrioritizedReplayBuffer {
    return attachBuffer(PrioritizedReplayBuffer, token, options)
  }
}

/** Options of {@link TensorDictPrioritizedReplayBuffer}. */
export interface TensorDictPrioritizedReplayBufferOptions
  extends Omit<TensorDictReplayBufferOptions, 'sampler'>,
    PrioritizedSamplerOptions {}

/**
 * A {@link TensorDictReplayBuffer} with a {@link PrioritizedSampler}.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { LazyTensorStorage, TensorDictPrioritizedReplayBuffer } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const buffer = new TensorDictPrioritizedReplayBuffer({ storage: new LazyTensorStorage(10), alpha: 1 })
 * buffer.extend(TensorDict.from({ td_error: Tensor.from([0, 1]) }, { batchSize: [2] }))
 * assert.deepEqual(buffer.sample(1).tensor('index').data, BigInt64Array.of(1n))
 * ```
 */
export class TensorDictPrioritizedReplayBuffer extends TensorDictReplayBuffer {
  /** @internal */
  static override readonly kind: string | undefined = 'TensorDictPrioritizedReplayBuffer'
  constructor(options: TensorDictPrioritizedReplayBufferOptions = {}) {
    const [priorities, rest] = prioritiesOf(options)
    super({ ...rest, sampler: new PrioritizedSampler(priorities) })
  }

  static override attach(
    token: ReplayBufferToken,
    options: AttachOptions = {},
  ): TensorDictPrioritizedReplayBuffer {
    return attachBuffer(TensorDictPrioritizedReplayBuffer, token, options)
  }
}

function prioritiesOf<O extends PrioritizedSamplerOptions>(
  options: O,
): [PrioritizedSamplerOptions, Omit<O, keyof PrioritizedSamplerOptions>] {
  const { alpha, beta, eps, maxPriorityWithinBuffer, ...rest } = options
  const given = Object.entries({ alpha, beta, eps, maxPriorityWithinBuffer })
  return [
    Object.fromEntries(given.filter(([, value]) => value !== undefined)) as PrioritizedSamplerOptions,
    rest,
  ]
}
