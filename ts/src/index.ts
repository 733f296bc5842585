/** The main path, from a model and a task to a trained model. Every other name has its home in another entry. */

export { createRenderer, Ledger, type Message, type Renderer } from './chat/index.js'
export { Controller, RolloutCollector, strictFifo, WeightSync, windowedFifo } from './collect/index.js'
export { type BuildDescription, describeBuild } from './core/build.js'
export {
  type DeviceMemory,
  type DeviceName,
  type Gpu,
  gpus,
  type OnDevice,
  type PlacedDevice,
  placeDevice,
} from './core/device.js'
export { ERROR_CODES, type ErrorCode, type ErrorParts, FulmarError } from './core/error.js'
export type { JsonSchema } from './core/field.js'
export { type InitOptions, init } from './core/init.js'
export { Rng, type RngState } from './core/rng.js'
export { generatedDataset, listDataset } from './data/index.js'
export { lastCompletionText, type MessageEnv, messagesOf, type Task } from './env/index.js'
export { AdamW, Decoder, Engine, generate } from './model/index.js'
export { DPOLoss, GRPOLoss, groupAdvantage, SFTLoss } from './objective/index.js'
export { type Completion, DecoderPolicy, type Policy, WorkerPolicy } from './policy/index.js'
export { PrioritizedReplayBuffer, ReplayBuffer, TensorDictReplayBuffer } from './replay/index.js'
export { type Evaluation, Rollouter, Rubric } from './rollout/index.js'
export {
  countdown,
  defineTask,
  gsm8k,
  math,
  type RewardInput,
  type Row,
  readRows,
  reward,
  sumDigits,
} from './task/index.js'
export { type Clock, ProgressLine, systemClock, writeReport } from './telemetry/index.js'
export { Tensor, TensorDict } from './tensor/index.js'
export { CharTokenizer, HfTokenizer, type TokenizerLike } from './tokenizer/index.js'
export { type Tool, ToolRunner, tool, toolInstructions, withTools } from './tools/index.js'
export {
  checkTrainConfig,
  cosineSchedule,
  createModel,
  type DpoStep,
  dpo,
  type ExpertIterationStep,
  evaluate,
  expertIteration,
  type GrpoStep,
  grpo,
  type KtoStep,
  kto,
  linearSchedule,
  loadModel,
  Model,
  type RewardModelStep,
  rewardModel,
  runTraining,
  type SftStep,
  sft,
} from './train/index.js'
export { AsyncVLLM, fetchClient } from './vllm/index.js'
