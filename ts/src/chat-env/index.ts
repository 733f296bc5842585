/** Environments over dictionaries, as TorchRL has them: chats, datasets, tasks, and transforms around them. */

export {
  AddThinkingPrompt,
  type AddThinkingPromptOptions,
  COGNITIVE_PROMPTS,
  THINKING_PROMPTS,
  withSecondThought,
} from './add-thinking-prompt.js'
export { AnswerRewardTransform, type AnswerRewardTransformOptions } from './answer-reward-transform.js'
export { ChatEnv, type ChatEnvOptions, chatsAt } from './chat-env.js'
export { type ChatTaskOptions, chatTask, type MessageEnvOfOptions, messageEnvOf } from './chat-task.js'
export { CountdownEnv, type CountdownEnvOptions } from './countdown-env.js'
export {
  DataLoadingPrimer,
  type DataLoadingPrimerOptions,
  type DataLoadingPrimerState,
  type DatasetRow,
  REPEATS_MAX,
} from './data-loading-primer.js'
export { DatasetChatEnv, type DatasetChatEnvOptions } from './dataset-chat-env.js'
export {
  type DictPolicy,
  type EnvBase,
  type EnvSpecs,
  type InputMode,
  nextRoot,
  type SpecEnvOptions,
  specEnvOf,
} from './env.js'
export { ExecuteToolsInOrder, type ExecuteToolsInOrderOptions } from './execute-tools-in-order.js'
export { GSM8KEnv, type GSM8KEnvOptions, type GSM8KRow } from './gsm8k-env.js'
export { IFEvalEnv, type IFEvalEnvOptions, type IFEvalRow } from './ifeval-env.js'
export { IfEvalRewardTransform, type IfEvalRewardTransformOptions } from './ifeval-reward-transform.js'
export { IncrementalTokenizer, type IncrementalTokenizerOptions } from './incremental-tokenizer.js'
export { KLComputation, type KLComputationOptions, type KlPenaltyOptions } from './kl-computation.js'
export { KLRewardTransform, type KLRewardTransformOptions } from './kl-reward-transform.js'
export { LLMEnv, type LLMEnvOptions } from './llm-env.js'
export { LLMHashingEnv, type LLMHashingEnvOptions } from './llm-hashing-env.js'
export type { ScoringPolicy, TokenScoringOptions } from './log-prob-rows.js'
export {
  GSM8KPrepareQuestion,
  type GSM8KPrepareQuestionOptions,
  type MakeGsm8kEnvOptions,
  makeGsm8kEnv,
} from './make-gsm8k-env.js'
export { MATHEnv, type MATHEnvOptions, type MATHRow } from './math-env.js'
export { PolicyVersion, type PolicyVersionOptions, VERSION_HISTORY_MAX } from './policy-version.js'
export { type ElementPrompt, type ReplyPolicyOptions, replyPolicy } from './reply-policy.js'
export { RetrieveKL, type RetrieveKLOptions } from './retrieve-kl.js'
export { RetrieveLogProb, type RetrieveLogProbOptions } from './retrieve-log-prob.js'
export { RESETS_MAX, type RolloutOptions, rollout } from './rollout.js'
export { SimpleToolTransform, type SimpleToolTransformOptions } from './simple-tool-transform.js'
export { StepCounter, type StepCounterOptions } from './step-counter.js'
export type { TaskEnvOptions } from './task-env.js'
export type { ToolTransformOptions } from './tool-transform.js'
export { type EnvTransform, type EnvView, TransformedEnv } from './transformed-env.js'
export { type DictTransform, type TurnTransformOptions, turnTransform } from './turn-transform.js'
