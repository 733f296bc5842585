/** Age of the weights of a batch. */

import { checkGiven, FulmarError } from '../core/index.js'
import { type Metric, metric } from '../telemetry/index.js'

/**
 * The ages of samples: `version` of the trainer minus the oldest weights behind each, as the metrics
 * `train_batch/policy_age` (mean and max).
 * @throws {FulmarError} `OUT_OF_RANGE` if a sample is older than `maxAge`: a bound that was promised, not a filter.
 *
 * @example
 * ```ts
 * import { policyAge } from 'fulmar/collect'
 * import { reduceMetrics } from 'fulmar/train'
 * import assert from 'node:assert/strict'
 *
 * const { values } = reduceMetrics(policyAge(10, [8, 9], 4))
 * assert.deepEqual(values, { 'train_batch/policy_age/mean': 1.5, 'train_batch/policy_age/max': 2 })
 * assert.throws(() => policyAge(4, [0], 3), { code: 'OUT_OF_RANGE' })
 * ```
 */
export function policyAge(version: number, minPolicyVersions: readonly number[], maxAge: number): Metric[] {
  checkGiven('version', version)
  const ages = minPolicyVersions.map((oldest) => version - oldest)
  const worst = ages.reduce((most, age) => Math.max(most, age), 0)
  if (worst > maxAge)
    throw new FulmarError('OUT_OF_RANGE', `age of a sample must be <= ${maxAge} steps: got ${worst}`)
  return [metric('train_batch/policy_age', 'mean', ages), metric('train_batch/policy_age', 'max', ages)]
}
