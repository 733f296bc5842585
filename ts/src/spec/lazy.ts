/** Stacks of dictionaries whose keys differ, and dictionaries that values are made of. */

import { checkGiven, checkKnownKeys } from '../core/index.js'
import { raw } from '../native/index.js'
import type { TensorDict } from '../tensor/index.js'
import { withRawDict } from '../tensor/tensor-dict.js'
import type { Composite } from './composite.js'
import { specAround, type TensorSpec, withRawSpec } from './tensor-spec.js'

/** Options of {@link makeCompositeFromTd}. */
export interface MakeCompositeOptions {
  /** If true, scalars become `[1]`. @default true */
  readonly unsqueezeNullShapes?: boolean
  /** If true, the last dimension of every tensor may have any length. @default false */
  readonly dynamicShape?: boolean
}

/**
 * Returns true if `spec` has a stack of different specs at any level.
 *
 * @example
 * ```ts
 * import { Categorical, Composite, containsLazySpec, TensorSpec } from 'fulmar/spec'
 * import assert from 'node:assert/strict'
 *
 * const action = TensorSpec.stack([new Categorical(2), new Categorical(3)])
 * assert.ok(containsLazySpec(new Composite({ action })))
 * ```
 */
export function containsLazySpec(spec: TensorSpec): boolean {
  checkGiven('spec', spec)
  return withRawSpec(spec, (one) => one.containsLazy())
}

/**
 * Returns true if the dictionaries of every stack in `spec` have the same keys, including nested ones.
 *
 * @example
 * ```ts
 * import { Categorical, checkNoExclusiveKeys, Composite, TensorSpec } from 'fulmar/spec'
 * import assert from 'node:assert/strict'
 *
 * const robot = (name: string) => new Composite({ [name]: new Categorical(2) })
 * assert.ok(!checkNoExclusiveKeys(TensorSpec.stack([robot('camera'), robot('lidar')])))
 * ```
 */
export function checkNoExclusiveKeys(spec: TensorSpec): boolean {
  checkGiven('spec', spec)
  return withRawSpec(spec, (one) => one.noExclusiveKeys())
}

/**
 * The same spec with the keys of every stacked dictionary in all of its stack. What a dictionary lacks is filled in behind
 * its own keys with a spec of the same kind whose first dimension after the batch, where it has one, is 0.
 * @throws {FulmarError} `INCOMPATIBLE` if a key is a dictionary in some of a stack only; `LIMIT_EXCEEDED` above 32 nested
 *   specs.
 *
 * @example
 * ```ts
 * import { Rng } from 'fulmar'
 * import { checkNoExclusiveKeys, Composite, consolidateSpec, TensorSpec, Unbounded } from 'fulmar/spec'
 * import assert from 'node:assert/strict'
 *
 * const robot = (name: string) => new Composite({ [name]: new Unbounded({ shape: [2] }) })
 * const robots = consolidateSpec(TensorSpec.stack([robot('camera'), robot('lidar')]))
 * assert.ok(checkNoExclusiveKeys(robots))
 * assert.ok(robots.contains(robots.rand(Rng.fromSeed(1))))
 * ```
 */
export function consolidateSpec(spec: TensorSpec): TensorSpec {
  return specAround(() => withRawSpec(spec, (one) => one.operate('{"op":"consolidate"}')))
}

/**
 * The unbounded spec of what `dict` holds: shapes and dtypes as they are, JSON values as examples.
 * @throws {FulmarError} `SHAPE_MISMATCH` if a dimension of the batch would become dynamic; `INCOMPATIBLE` for a ragged entry;
 *   `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { makeCompositeFromTd } from 'fulmar/spec'
 * import assert from 'node:assert/strict'
 *
 * const step = TensorDict.from({ observation: Tensor.from([1, 2, 3]), reward: Tensor.from([1], { shape: [] }) })
 * const spec = makeCompositeFromTd(step)
 * assert.deepEqual([spec.get('observation')?.shape, spec.get('reward')?.shape], [[3], [1]])
 * ```
 */
export function makeCompositeFromTd(dict: TensorDict, options: MakeCompositeOptions = {}): Composite {
  checkKnownKeys('options', options, ['unsqueezeNullShapes', 'dynamicShape'])
  const { unsqueezeNullShapes = true, dynamicShape = false } = options
  const make = () =>
    withRawDict(dict, (one) => raw.TensorSpec.fromDict(one, unsqueezeNullShapes, dynamicShape))
  return specAround(make) as Composite
}
