/**
 * Treatment of samples whose weights became too old before training.
 *
 * ```text
 * trainer's version 7, maxAge 2: what versions below 5 sampled is too old
 * versions 3 3 4 5 6   maskPrefix: trains 5 6      withhold, cancel: trains nothing of it      continue: trains all
 * ```
 *
 * Rewards and advantages were compared before, so a rollout that is left out keeps its part in its group's baseline.
 */

import type { TrainingSample } from '../chat/index.js'
import { checkKnownKeys } from '../core/index.js'
import { type Metric, metric } from '../telemetry/index.js'

/**
 * Treatment of a sample that is older than the bound: train it anyway, train it without the tokens of too old
 * weights, or drop it; `cancel` also cancels its group while it is running, and starts another.
 */
export type OverStale = 'continue' | 'maskPrefix' | 'withhold' | 'cancel'

/** Options of {@link limitAge}. */
export interface LimitAgeOptions {
  /** The version of the trainer. */
  readonly version: number
  /** Maximum number of steps that trained tokens may be behind the trainer. */
  readonly maxAge: number
  /** Treatment of older samples. */
  readonly overStale: OverStale
}

/**
 * Leaves out what is too old to train. Costs O(tokens) of the samples that are; the others are returned as they are.
 *
 * @example
 * ```ts
 * import { Ledger } from 'fulmar'
 * import { limitAge } from 'fulmar/collect'
 * import assert from 'node:assert/strict'
 *
 * using ledger = new Ledger()
 * const logProbs = Float32Array.of(-0.5, -0.25)
 * const policyVersion = Uint32Array.of(3, 6) // the weights changed between these two tokens
 * ledger.recordTurn({ promptIds: Uint32Array.of(1), completionIds: Uint32Array.of(4, 5), logProbs, sampledLogProbs: logProbs, policyVersion })
 * const samples = ledger.trainingSamples(0.5)
 * const masked = limitAge(samples, { version: 7, maxAge: 2, overStale: 'maskPrefix' })
 * assert.deepEqual([...(masked.samples[0]?.mask ?? [])], [0, 0, 1])
 * const withheld = limitAge(samples, { version: 7, maxAge: 2, overStale: 'withhold' })
 * assert.equal(withheld.samples.length, 0)
 * ```
 */
export function limitAge(
  samples: readonly TrainingSample[],
  options: LimitAgeOptions,
): { readonly samples: readonly TrainingSample[]; readonly metrics: readonly Metric[] } {
  checkKnownKeys('options', options, ['version', 'maxAge', 'overStale'], ['version', 'maxAge', 'overStale'])
  const { version, maxAge, overStale } = options
  const oldest = version - maxAge
  const numTooOld = samples.filter(({ minPolicyVersion }) => minPolicyVersion < oldest).length
  if (numTooOld === 0 || overStale === 'continue') return { samples, metrics: [] }
  let numMasked = 0
  const kept = samples.flatMap((sample) => {
    if (sample.minPolicyVersion >= oldest) return [sample]
    if (overStale !== 'maskPrefix' || sample.maxPolicyVersion < oldest) return []
    const masked = maskBefore(oldest, sample)
    numMasked += count(sample.mask) - count(masked.mask)
    return count(masked.mask) > 0 ? [masked] : []
  })
  const metrics = [
    metric('train_batch/num_samples_withheld', 'sum', samples.length - kept.length),
    metric('train_batch/num_tokens_masked', 'sum', numMasked),
  ]
  return { samples: kept, metrics }
}

/** A sample in which no token trains that weights before `oldest` may have sampled. */
function maskBefore(oldest: number, sample: TrainingSample): TrainingSample {
  const mask = sample.mask.map((flag, at) => (flag === 1 && (sample.versions[at] ?? 0) >= oldest ? 1 : 0))
  const versions = sample.versions.map((value, at) => (mask[at] === 1 ? value : 0))
  const where = (values: Float32Array) => values.map((value, at) => (mask[at] === 1 ? value : 0))
  return {
    ...sample,
    mask,
    versions,
    logProbs: where(sample.logProbs),
    sampledLogProbs: where(sample.sampledLogProbs),
    advantages: where(sample.advantages),
    minPolicyVersion: versions.reduce(
      (least, value, at) => (mask[at] === 1 ? Math.min(least, value) : least),
      Number.POSITIVE_INFINITY,
    ),
  }
}

function count(mask: Uint8Array): number {
  return mask.reduce((sum, flag) => sum + flag, 0)
}
