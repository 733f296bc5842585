/**
 * Conversion of scored groups to the inputs of a loss.
 *
 * A group gives no samples if it is empty, if a member sampled nothing, if none has a score, or (by default)
 * if all scored members have the same reward: every advantage is then 0. Unscored members of other groups are
 * left out.
 */

import type { TrainingSample } from '../chat/index.js'
import { checkGiven, checkKnownKeys, FulmarError } from '../core/index.js'
import { type Metric, metric } from '../telemetry/index.js'
import type { Rollout, RolloutGroup } from './rollout.js'

/** Options of {@link buildTrainingSamples}. */
export interface TrainingSampleBuilderOptions {
  /**
   * If true, leaves out groups whose scored rewards are all equal.
   * @default true
   */
  readonly dropZeroStdRewardGroups?: boolean
}

/** Result of {@link buildTrainingSamples}. */
export interface TrainingSamples {
  /** One sample for each trained branch of each rollout. */
  readonly samples: readonly TrainingSample[]
  /** Metrics of the group, and of dropped groups by reason. */
  readonly metrics: readonly Metric[]
}

/**
 * `S` samples one after another: sample `s` has the tokens `offsets[s]..offsets[s + 1]`. Input of a
 * policy-gradient loss, except for the log-probabilities of the policy in training.
 */
export interface TrainingBatch {
  /** Token ids. Shape `[T]`. */
  readonly ids: Uint32Array
  /** Bounds of the samples. Shape `[S + 1]`. */
  readonly offsets: Uint32Array
  /** 1 on the tokens that are trained, else 0. Shape `[T]`. */
  readonly mask: Uint8Array
  /** Log-probabilities at temperature 1 when the tokens were sampled; 0 where `mask` is 0. Shape `[T]`. */
  readonly logProbs: Float32Array
  /** Log-probabilities under the sampling distribution; 0 where `mask` is 0. Shape `[T]`. */
  readonly sampledLogProbs: Float32Array
  /** Advantage of the rollout; 0 where `mask` is 0. Shape `[T]`. */
  readonly advantages: Float32Array
  /** Oldest policy version that may have sampled each token; 0 where `mask` is 0. Shape `[T]`. */
  readonly versions: Uint32Array
  /** Number of trained tokens. */
  readonly numTrained: number
  /** Oldest policy version that sampled a trained token. */
  readonly minPolicyVersion: number
  /** Newest policy version that sampled a trained token. */
  readonly maxPolicyVersion: number
}

/**
 * Builds the samples of one group before its ledgers are freed; the samples stay valid afterwards.
 *
 * @example
 * ```ts
 * import { Ledger } from 'fulmar'
 * import { buildTrainingSamples, RolloutGroup } from 'fulmar/rollout'
 * import assert from 'node:assert/strict'
 *
 * const none = buildTrainingSamples(new RolloutGroup({ groupId: 0, sample: null, rollouts: [], metrics: [] }))
 * assert.deepEqual(none, { samples: [], metrics: [] })
 * ```
 */
export function buildTrainingSamples(
  group: RolloutGroup,
  options: TrainingSampleBuilderOptions = {},
): TrainingSamples {
  checkKnownKeys('options', options, ['dropZeroStdRewardGroups'])
  checkGiven('group', group)
  const { dropZeroStdRewardGroups = true } = options
  const { rollouts, metrics } = group
  const drop = (reason: string, measured: readonly Metric[] = []): TrainingSamples => {
    const dropped = metric(`training_sample_builder/num_groups_dropped_${reason}`, 'sum', 1)
    return { samples: [], metrics: [...metrics, ...measured, dropped] }
  }
  if (rollouts.length === 0) return { samples: [], metrics }
  if (!rollouts.every(hasSampled)) return drop('untrainable')
  const scored = rollouts.filter(({ reward }) => reward !== null)
  if (scored.length === 0) return drop('unscored')
  const isZeroStd = scored.length > 1 && scored.every(({ reward }) => reward === scored[0]?.reward)
  const zeroStd = metric('rollout_reward/group_zero_std_frac', 'mean', Number(isZeroStd))
  if (isZeroStd && dropZeroStdRewardGroups) return drop('zero_std', [zeroStd])
  const branches = scored.map((rollout) => rollout.ledger.trainingSamples(rollout.advantage))
  return { samples: branches.flat(), metrics: [...metrics, zeroStd, ...sampleMetrics(scored, branches)] }
}

/**
 * Concatenates samples. Costs O(tokens); all arrays are new.
 * @throws {FulmarError} `EMPTY` if there is no sample.
 *
 * @example
 * ```ts
 * import { Ledger } from 'fulmar'
 * import { packTrainingBatch } from 'fulmar/rollout'
 * import assert from 'node:assert/strict'
 *
 * using ledger = new Ledger()
 * const logProbs = Float32Array.of(-0.5)
 * ledger.recordTurn({ promptIds: Uint32Array.of(1, 2), completionIds: Uint32Array.of(4), logProbs, sampledLogProbs: logProbs, policyVersion: 3 })
 * const batch = packTrainingBatch([...ledger.trainingSamples(0.5), ...ledger.trainingSamples(-1)])
 * assert.deepEqual([...batch.ids], [1, 2, 4, 1, 2, 4])
 * assert.deepEqual([...batch.offsets], [0, 3, 6])
 * assert.deepEqual([...batch.advantages], [0, 0, 0.5, 0, 0, -1])
 * ```
 */
export function packTrainingBatch(samples: readonly TrainingSample[]): TrainingBatch {
  checkGiven('samples', samples)
  if (samples.length === 0) throw new FulmarError('EMPTY', 'samples must hold a sample: they are empty')
  const offsets = new Uint32Array(samples.length + 1)
  samples.forEach(({ ids }, index) => {
    offsets[index + 1] = (offsets[index] ?? 0) + ids.length
  })
  const numTokens = offsets.at(-1) ?? 0
  const batch = {
    ids: new Uint32Array(numTokens),
    mask: new Uint8Array(numTokens),
    logProbs: new Float32Array(numTokens),
    sampledLogProbs: new Float32Array(numTokens),
    advantages: new Float32Array(numTokens),
    versions: new Uint32Array(numTokens),
  }
  samples.forEach((sample, index) => {
    const start = offsets[index]
    batch.ids.set(sample.ids, start)
    batch.mask.set(sample.mask, start)
    batch.logProbs.set(sample.logProbs, start)
    batch.sampledLogProbs.set(sample.sampledLogProbs, start)
    batch.advantages.set(sample.advantages, start)
    batch.versions.set(sample.versions, start)
  })
  return {
    ...batch,
    offsets,
    numTrained: batch.mask.reduce((sum, flag) => sum + flag, 0),
    ...versionSpan(samples),
  }
}

function hasSampled({ turns }: Rollout): boolean {
  return turns.some(({ completionIds }) => completionIds.length > 0)
}

function sampleMetrics(
  scored: readonly Rollout[],
  branches: readonly (readonly TrainingSample[])[],
): Metric[] {
  const counts = branches.map(({ length }) => length)
  const samples = branches.flat()
  const span = versionSpan(samples)
  return [
    metric('training_sample_builder/num_training_samples', 'sum', samples.length),
    metric(
      'advantage',
      'summary',
      scored.map(({ advantage }) => advantage ?? 0),
    ),
    metric('rollout/branches_per_rollout', 'mean', counts),
    metric('rollout/branches_per_rollout', 'max', counts),
    metric('rollout/min_policy_version', 'min', span.minPolicyVersion),
    metric('rollout/max_policy_version', 'max', span.maxPolicyVersion),
  ]
}

function versionSpan(samples: readonly TrainingSample[]): {
  minPolicyVersion: number
  maxPolicyVersion: number
} {
  const oldest = (least: number, { minPolicyVersion }: TrainingSample) => Math.min(least, minPolicyVersion)
  const newest = (most: number, { maxPolicyVersion }: TrainingSample) => Math.max(most, maxPolicyVersion)
  return {
    minPolicyVersion: samples.reduce(oldest, Number.POSITIVE_INFINITY),
    maxPolicyVersion: samples.reduce(newest, 0),
  }
}
