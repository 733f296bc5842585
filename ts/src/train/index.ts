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
export { CHECKPOINT_JSON_BYTES_MAX, CHECKPOINT_WEIGHTS_BYTES_MAX } from './checkpoint-folder.js'
export {
  type CoreOptions,
  checkTrainConfig,
  type DpoConfig,
  type EvalConfig,
  type GrpoConfig,
  type ModelConfig,
  type SftConfig,
  type TaskConfig,
  type TrainConfig,
  type TrainConfigOptions,
  type TrainResult,
  trainConfigSchema,
} from './config.js'
export { type DpoOptions, type DpoStep, dpo, type PreferenceObjective } from './dpo.js'
export { type ExpertIterationOptions, type ExpertIterationStep, expertIteration } from './expert-iteration.js'
export { type GrpoOptions, type GrpoStep, grpo } from './grpo.js'
export { TINY_DECODER } from './load-model.js'
export type { Reference } from './reference.js'
export { EMPTY_STEPS_MAX, type RolloutTrainingOptions, type RolloutTrainingStep } from './rollout-training.js'
export { evaluateRun, runTraining, type TrainHooks } from './run.js'
export {
  type ConstantScheduleOptions,
  constantSchedule,
  cosineSchedule,
  type FallingScheduleOptions,
  linearSchedule,
  type Schedule,
} from './schedule.js'
export { type SftExample, type SftOptions, type SftStep, sft } from './sft.js'
export { type NamedTask, type TaskFactory, taskFactories } from './task-factory.js'
export { type TrainStepOptions, type TrainStepResult, trainStep } from './train-step.js'
export type { CompletionRow, ConversationRow, PreferencePair, Said } from './training-rows.js'
