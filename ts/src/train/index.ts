/** Recipes: supervised fine-tuning, GRPO, whole runs. */

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
  type EvalConfig,
  type GrpoConfig,
  type SftConfig,
  type TaskConfig,
  type TrainConfig,
  type TrainResult,
} from './config.js'
export { EMPTY_STEPS_MAX, type GrpoOptions, type GrpoStep, grpo } from './grpo.js'
export { evaluateRun, runTraining, TINY_DECODER, type TrainHooks } from './run.js'
export {
  type ConstantScheduleOptions,
  constantSchedule,
  cosineSchedule,
  type FallingScheduleOptions,
  linearSchedule,
  type Schedule,
} from './schedule.js'
export { type SftOptions, type SftStep, sft } from './sft.js'
export { type TrainStepOptions, type TrainStepResult, trainStep } from './train-step.js'
