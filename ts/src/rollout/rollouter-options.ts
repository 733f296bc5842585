/** Options of a rollouter and of its runs. */

import type { Renderer } from '../chat/index.js'
import type { Split, Task } from '../env/index.js'
import type { Policy } from '../policy/index.js'
import type { Clock } from '../telemetry/index.js'
import type { AdvantageEstimatorOptions } from './advantage.js'
import type { EvaluationSample } from './evaluation.js'
import type { Rollout } from './rollout.js'
import type { SamplingOptions } from './rollout-loop.js'
import type { Rollouter } from './rollouter.js'
import type { RubricOptions } from './rubric.js'
import type { TokenEnvLimits } from './token-env.js'

/** Options of {@link Rollouter}. */
export interface RollouterOptions<Sample> extends TokenEnvLimits, SamplingOptions, AdvantageEstimatorOptions {
  /** Policy that samples the completions; the caller disposes it. */
  readonly policy: Policy
  /** Source of samples, environments and rewards. */
  readonly task: Task<Sample>
  /** Renderer of the policy's model; the caller disposes it. */
  readonly renderer: Renderer
  /**
   * Number of rollouts per sample.
   * @default 8
   */
  readonly groupSize?: number
  /**
   * Seed of every draw. A non-negative safe integer.
   * @default 0
   */
  readonly seed?: number
  /** Fixed rewards and the deadline of the task's reward functions. */
  readonly rubric?: Pick<RubricOptions<Sample>, 'truncationReward' | 'errorReward' | 'timeoutMs'>
  /**
   * Maximum number of concurrent rollouts; others wait.
   * @default 1024
   */
  readonly concurrency?: number
  /**
   * Maximum number of tokens that all turns of a rollout sample together.
   * @default no limit
   */
  readonly maxTotalTokens?: number
  /**
   * Deadline of one completion in milliseconds; `null` for none.
   * @default null
   */
  readonly generateTimeoutMs?: number | null
  /**
   * Deadline of a whole rollout in milliseconds, without the time in the queue; `null` for none.
   * @default null
   */
  readonly rolloutTimeoutMs?: number | null
  /**
   * Number of retries of a rollout that ended with an error, with a new environment and new draws.
   * @default 0
   */
  readonly retries?: number
  /**
   * Treatment of rollouts that ended with an error after their retries. `keep` scores them like any other.
   * `drop` leaves them unscored; `{ minViable: n }` does so too, and leaves the whole group unscored if fewer
   * than `n` members have no error.
   * @default 'keep'
   */
  readonly onError?: 'keep' | 'drop' | { readonly minViable: number }
  /**
   * Deadline of closing an environment in milliseconds.
   * @default 60_000
   */
  readonly closeTimeoutMs?: number
  /** Clock of deadlines. @default systemClock */
  readonly clock?: Clock
}

/** The keys of {@link RollouterOptions}. */
export const ROLLOUTER_KEYS = [
  'policy',
  'task',
  'renderer',
  'groupSize',
  'seed',
  'rubric',
  'concurrency',
  'maxTotalTokens',
  'generateTimeoutMs',
  'rolloutTimeoutMs',
  'retries',
  'onError',
  'closeTimeoutMs',
  'clock',
  'maxRolloutTokens',
  'minCompletionTokens',
  'maxTurns',
  'stepTimeoutMs',
  'onTruncation',
  'maxTokens',
  'temperature',
  'topK',
  'topP',
  'stopStrings',
  'stdNormalize',
] as const satisfies readonly (keyof RollouterOptions<never>)[]

/** Options of {@link Rollouter.evaluate}. */
export interface MeasureOptions<Sample = unknown> {
  /** Number of held-out samples. */
  readonly numProblems: number
  /**
   * Number of answers to each of them.
   * @default 1
   */
  readonly numAnswers?: number
  /**
   * Divisor of the logits before sampling.
   * @default the rollouter's own
   */
  readonly temperature?: number
  /** Stops the evaluation. */
  readonly signal?: AbortSignal
  /**
   * Answers of an earlier evaluation, by problem and index: these are not sampled again.
   * @default none
   */
  readonly known?: readonly EvaluationSample<Sample>[]
  /**
   * Called with each new answer as soon as the answers to its problem are scored. The ledger of the rollout is
   * freed afterwards.
   */
  readonly onAnswer?: (answer: EvaluationSample<Sample>, rollout: Rollout) => void
}

/** The keys of {@link MeasureOptions}. */
export const MEASURE_KEYS = [
  'numProblems',
  'numAnswers',
  'temperature',
  'signal',
  'known',
  'onAnswer',
] as const satisfies readonly (keyof MeasureOptions)[]

/** Options of {@link Rollouter.runGroup}. */
export interface RunGroupOptions<Sample> {
  /** Sample for the environments and the rubric. */
  readonly sample: Sample
  /** Index of the group in the run; part of the seeds. A non-negative integer. */
  readonly groupId: number
  /**
   * Stream of the sample; part of the seeds and of the metric names.
   * @default 'train'
   */
  readonly split?: Split
  /** Stops the group with `ABORTED`; environments are closed all the same. */
  readonly signal?: AbortSignal
}
