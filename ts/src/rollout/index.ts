/** Rollouts: conversations played, scored, compared and made into training samples. */

export { type AdvantageEstimatorOptions, estimateAdvantages } from './advantage.js'
export {
  compareEvaluations,
  type EvaluationComparison,
  type PairedDifference,
} from './compare-evaluations.js'
export type { Evaluation, EvaluationSample } from './evaluation.js'
export { MessageRollouter, type MessageRollouterOptions } from './message-rollouter.js'
export type { Interval } from './problem-statistics.js'
export {
  formatTurnId,
  type Rollout,
  type RolloutCause,
  RolloutGroup,
  type RolloutStage,
  type RolloutTurn,
  type RolloutTurnId,
  type TokenUsage,
  type TurnFork,
  type UnscoredCause,
} from './rollout.js'
export type { SamplingOptions } from './rollout-loop.js'
export { type GroupCursor, type GroupWork, Rollouter, type RollouterState } from './rollouter.js'
export type { MeasureOptions, RollouterOptions, RunGroupOptions } from './rollouter-options.js'
export { Rubric, type RubricOptions, type RubricOutput } from './rubric.js'
export {
  keepExtremeRewards,
  type RolloutSample,
  RolloutSampleRecorder,
  type RolloutSampleRecorderOptions,
  type RolloutSampleTurn,
} from './sample-recorder.js'
export {
  TokenEnv,
  type TokenEnvLimits,
  type TokenEnvOptions,
  type TokenEnvOutput,
  type TokenPrompt,
} from './token-env.js'
export {
  buildTrainingSamples,
  packTrainingBatch,
  type TrainingBatch,
  type TrainingSampleBuilderOptions,
  type TrainingSamples,
} from './training-sample-builder.js'
