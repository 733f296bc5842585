/** Rows that are not too old for the policy. */

import type { TensorKey } from '../tensor/index.js'
import { rawTransform, Transform } from './transform.js'

/** Options of {@link PolicyAgeFilter}. */
export interface PolicyAgeFilterOptions {
  /** Current version, an integer from 0, or a function that returns it before each use. @default 0 */
  readonly version?: number | (() => number)
  /** Maximum number of versions that a row may be behind, an integer from 0. @default 0 */
  readonly maxPolicyLag?: number
  /** Key of the version of a row, an integer. @default 'policy_version' */
  readonly policyVersionKey?: TensorKey
  /** If true, rows without a version throw; else they stay. @default false */
  readonly strict?: boolean
}

/**
 * Keeps the rows that were made by a policy at most `maxPolicyLag` versions older than the one in use, both when they are
 * written and when they are read. A row of several steps is as old as its oldest step. May leave a batch of no rows.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { PolicyAgeFilter } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * let version = 3
 * using filter = new PolicyAgeFilter({ version: () => version, maxPolicyLag: 1 })
 * const rows = TensorDict.from({ policy_version: Tensor.from(Int32Array.of(1, 2, 3)) }, { batchSize: [3] })
 * assert.deepEqual(filter.forward(rows).tensor('policy_version').data, Int32Array.of(2, 3))
 * version = 9
 * assert.deepEqual(filter.forward(rows).batchSize, [0])
 * ```
 */
export class PolicyAgeFilter extends Transform {
  /**
   * @throws {FulmarError} `OUT_OF_RANGE` if `maxPolicyLag` is negative. `forward`, `inverse`: `UNKNOWN_NAME` if `strict` and there
   *   is no version; `INCOMPATIBLE` if versions are not integers; `SHAPE_MISMATCH` without a batch dimension; `OUT_OF_RANGE` if
   *   the version in use is not an integer from 0.
   */
  constructor(options: PolicyAgeFilterOptions = {}) {
    const version = options?.version
    if (typeof version !== 'function') super(() => rawTransform('PolicyAgeFilter', options))
    else {
      const rest = { ...options, version: undefined }
      super(
        () => rawTransform('PolicyAgeFilter', rest),
        (filter) => filter.setPolicyVersion(version()),
      )
    }
  }
}
