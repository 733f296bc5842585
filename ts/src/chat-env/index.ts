/** Environments over dictionaries, as TorchRL has them: chats, datasets, tasks, and transforms around them. */

export { ChatEnv, type ChatEnvOptions, chatsAt } from './chat-env.js'
export {
  DataLoadingPrimer,
  type DataLoadingPrimerOptions,
  type DataLoadingPrimerState,
  type DatasetRow,
  REPEATS_MAX,
} from './data-loading-primer.js'
export { DatasetChatEnv, type DatasetChatEnvOptions } from './dataset-chat-env.js'
export {
  type DictPolicyOptions,
  dictPolicy,
  type ElementPrompt,
  type ReplyPolicyOptions,
  replyPolicy,
} from './dict-policy.js'
export {
  type DictPolicy,
  type EnvBase,
  type EnvSpecs,
  nextRoot,
  type SpecEnvOptions,
  specEnvOf,
} from './env.js'
export { PolicyVersion, type PolicyVersionOptions, VERSION_HISTORY_MAX } from './policy-version.js'
export { type RolloutOptions, rollout } from './rollout.js'
export { StepCounter, type StepCounterOptions } from './step-counter.js'
export { type EnvTransform, TransformedEnv } from './transformed-env.js'
