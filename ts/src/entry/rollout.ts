/** Rollouts: groups of episodes with a task, their scores and training batches. */

export {
  isError,
  isTerminal,
  isTruncated,
  lastCompletionText,
  messagesOf,
  type ProgramResult,
  ROLLOUT_STATUSES,
  type RolloutStatus,
  type RolloutView,
  type TurnView,
} from '../env/index.js'
export * from '../rollout/index.js'
