/** Several transforms as one. */

import { call, checkGiven, describeValue, FulmarError } from '../core/index.js'
import { type RawTransforms, raw } from '../native/index.js'
import { prepareTransform, Transform, withRawTransform } from './transform.js'

/**
 * Transforms that run one after another: in order when a batch is read, the last first when items are written. What one lets
 * go in `flush` still passes those that come after it. The transforms stay what they are: their state is that of the whole.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { Compose, RenameTransform, RewardScaling } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * using both = new Compose([
 *   new RewardScaling({ loc: 0, scale: 0.5 }),
 *   new RenameTransform({ inKeys: 'reward', outKeys: 'score' }),
 * ])
 * const batch = TensorDict.from({ reward: Tensor.from([2, 4]) }, { batchSize: [2] })
 * assert.deepEqual(both.forward(batch).tensor('score').data, Float32Array.of(1, 2))
 * ```
 */
export class Compose extends Transform {
  /** The transforms, in the order of `forward`. */
  readonly transforms: readonly Transform[]

  /** @throws {FulmarError} `INCOMPATIBLE` for an object of your own, which a buffer takes; `CLOSED` if one was disposed. */
  constructor(transforms: readonly Transform[]) {
    checkGiven('transforms', transforms)
    const list = [...transforms]
    super(
      () => chained(list),
      () => list.forEach(prepareTransform),
    )
    this.transforms = list
  }
}

function chained(transforms: readonly Transform[]): RawTransforms {
  const all = call(() => raw.Transforms.create('[]'))
  for (const transform of transforms) {
    if (!(transform instanceof Transform)) {
      const got = describeValue(transform)
      throw new FulmarError('INCOMPATIBLE', `transforms must hold classes of Transform: got ${got}`)
    }
    withRawTransform(transform, (one) => all.push(one))
  }
  return all
}
