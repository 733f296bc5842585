/** Recipes: supervised fine-tuning, DPO, GRPO, expert iteration, whole runs. */

export {
  type Checkpoint,
  type CheckpointState,
  hasCheckpoint,
  loadCheckpoint,
  loadOptimizer,
  removeCheckpoint,
  type SaveCheckpointOptions,
  saveCheckpoint,
} from './checkpoint.js'
export {
  type CoreOptions,
  checkTrainConfig,
  type DpoConfig,
  type EvalConfig,
  type GrpoConfig,
  type ModelConfig,
  type RecordConfig,
  type SftConfig,
  type TaskConfig,
  type TrainConfig,
  type TrainConfigOptions,
  type TrainResult,
  trainConfigSchema,
} from './config.js'
export { type DpoModelOptions, type DpoOptions, type DpoStep, dpo, type PreferenceObjective } from './dpo.js'
export { type EvaluateOptions, evaluate } from './evaluate.js'
export {
  type ExpertIterationModelOptions,
  type ExpertIterationOptions,
  type ExpertIterationStep,
  expertIteration,
} from './expert-iteration.js'
export { type GrpoModelOptions, type GrpoOptions, type GrpoStep, grpo, SAMPLER_CORRECTION } from './grpo.js'
export { type KtoModelOptions, type KtoOptions, type KtoStep, kto, type LabelledAnswer } from './kto.js'
export {
  type AdapterOptions,
  type ChatOptions,
  type CreateModelOptions,
  createModel,
  type LoadModelOptions,
  loadModel,
  Model,
  type SaveModelOptions,
  TINY_DECODER,
} from './model.js'
export type { ModelReferenceOptions, ModelRolloutOptions, ModelTrainingOptions } from './model-training.js'
export type { Reference } from './reference.js'
export {
  type RewardModelModelOptions,
  type RewardModelOptions,
  type RewardModelStep,
  type RewardObjective,
  rewardModel,
} from './reward-model.js'
export type { RolloutTrainingOptions, RolloutTrainingStep } from './rollout-training.js'
export { type EvaluateRunOptions, evaluateRun, runTraining, type TrainHooks } from './run.js'
export {
  type ConstantScheduleOptions,
  constantSchedule,
  cosineSchedule,
  type FallingScheduleOptions,
  linearSchedule,
  type Schedule,
} from './schedule.js'
export { type SftExample, type SftModelOptions, type SftOptions, type SftStep, sft } from './sft.js'
export { type TaskFactory, taskFactories } from './task-factory.js'
export { type TrainStepOptions, type TrainStepResult, trainStep } from './train-step.js'
export type {
  CompletionRow,
  ConversationRow,
  PreferencePair,
  RowTrainingOptions,
  Said,
} from './training-rows.js'
