/** Tasks: samples, environments and rewards of something to learn. */

export * from '../data/index.js'
export type {
  EnvContext,
  MessageEnv,
  MessageEnvInitOutput,
  MessageEnvStepOutput,
  RewardContext,
  RewardFn,
  RewardScore,
  Split,
  Task,
  Unscored,
} from '../env/index.js'
export { type IfEvalSample, type IfEvalTaskOptions, ifeval } from '../task/ifeval.js'
export * from '../task/index.js'
