/** Draws by the age of the policy that made the rows. */

import { checkKnownKeys, FulmarError } from '../core/index.js'
import type { TensorKey } from '../tensor/index.js'
import { pathOf } from '../tensor/tensor-dict.js'
import { Sampler } from './sampler.js'

/** Maximum number of weights requested from a staleness function. */
const WEIGHTS_MAX = 65_536

/** Options of {@link StalenessAwareSampler}. */
export interface StalenessAwareSamplerOptions {
  /** Maximum number of versions that a row may be behind, from 0. @default no limit */
  readonly maxStaleness?: number
  /** Key of the version of an item. @default 'policy_version' */
  readonly versionKey?: TensorKey
  /**
   * The weight of each staleness from 0, the last for all beyond; or a function of it, asked once for each up to `maxStaleness`, which must
   * be given then. Rows of a weight of 0 are not drawn. @default `1 / (1 + staleness)`
   */
  readonly stalenessWeight?: readonly number[] | ((staleness: number) => number)
}

/**
 * Samples rows with replacement, in proportion to `1 / (1 + staleness)` or to weights of your own. The staleness of a row is
 * {@link StalenessAwareSampler.consumerVersion} minus its version; batches have it at `staleness`.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { LazyTensorStorage, ReplayBuffer, StalenessAwareSampler } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const sampler = new StalenessAwareSampler({ maxStaleness: 0 })
 * const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(10), sampler, seed: 1 })
 * const policy_version = Tensor.from(BigInt64Array.of(1n, 2n))
 * buffer.extend(TensorDict.from({ policy_version, id: Tensor.from([5, 6]) }, { batchSize: [2] }))
 * sampler.consumerVersion = 2
 * assert.deepEqual(buffer.sample(2).tensor('id').data, Float32Array.of(6, 6))
 * ```
 */
export class StalenessAwareSampler extends Sampler {
  constructor(options: StalenessAwareSamplerOptions = {}) {
    checkKnownKeys('options', options, ['maxStaleness', 'versionKey', 'stalenessWeight'])
    const { versionKey, stalenessWeight, ...rest } = options
    super({
      kind: 'stalenessAware',
      ...rest,
      ...(stalenessWeight !== undefined && { weights: weightsOf(stalenessWeight, rest.maxStaleness) }),
      ...(versionKey !== undefined && { versionKey: pathOf(versionKey) }),
    })
  }

  /** The version of the learner, a whole number. */
  get consumerVersion(): number {
    return this.owner().parameter('consumerVersion')
  }

  set consumerVersion(value: number) {
    this.owner().setParameter('consumerVersion', value)
  }
}

/** A table of weights, which the core can ask in any thread. */
function weightsOf(
  weight: readonly number[] | ((staleness: number) => number),
  maxStaleness: number | undefined,
): readonly number[] {
  if (typeof weight === 'function' && !Number.isInteger(maxStaleness)) {
    throw new FulmarError(
      'OUT_OF_RANGE',
      'maxStaleness must be given with a function of weights: it is undefined',
    )
  }
  const length = (maxStaleness ?? 0) + 1
  if (typeof weight === 'function' && length > WEIGHTS_MAX) {
    throw new FulmarError('LIMIT_EXCEEDED', `maxStaleness must be < ${WEIGHTS_MAX}: got ${maxStaleness}`)
  }
  const weights =
    typeof weight === 'function' ? Array.from({ length }, (_, staleness) => weight(staleness)) : weight
  const wrong = weights.find((one) => !Number.isFinite(one))
  // JSON would write null, which means absent.
  if (wrong !== undefined) {
    throw new FulmarError('NON_FINITE', `stalenessWeight must give finite numbers: got ${wrong}`)
  }
  if (weights.length === 0) throw new FulmarError('EMPTY', 'stalenessWeight must hold a weight: it is empty')
  return weights
}
