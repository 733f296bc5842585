/** Environments, rewards, tasks. */

export {
  checkInitOutput,
  checkStepOutput,
  type EnvContext,
  type MessageEnv,
  type MessageEnvInitOutput,
  type MessageEnvStepOutput,
} from './message-env.js'
export { isError, isTerminal, isTruncated, ROLLOUT_STATUSES, type RolloutStatus } from './rollout-status.js'
export {
  lastCompletionText,
  messagesOf,
  type ProgramResult,
  type RewardContext,
  type RewardFn,
  type RewardScore,
  type RolloutView,
  type Split,
  type Task,
  type TurnView,
  type Unscored,
} from './task.js'
