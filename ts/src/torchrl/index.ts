/** TorchRL's names: containers, wrappers, environments and transforms over dictionaries. */

export {
  LLMCollector,
  type LLMCollectorBatch,
  type LLMCollectorOptions,
} from './collectors/llm-collector.js'
export {
  type ChatTemplateOptions,
  type DictChatOptions,
  type PaddedRows,
  type RenderingOptions,
  type TensorChatOptions,
  type TextChatOptions,
  toPadded,
  toRagged,
} from './data/apply-chat-template.js'
export { type ChatFields, ChatHistory, type TokenizingOptions } from './data/chat-history.js'
export { ContentBase, type ContentFields } from './data/content.js'
export { createInfiniteIterator } from './data/create-infinite-iterator.js'
export {
  type Dataloader,
  type DataloaderOptions,
  type DataloaderState,
  getDataloader,
} from './data/get-dataloader.js'
export { History } from './data/history.js'
export type { FromTextOptions, GrowOptions, HistorySpec } from './data/history-options.js'
export { LLMData } from './data/llm-data.js'
export { LLMInput } from './data/llm-input.js'
export { LLMOutput } from './data/llm-output.js'
export type { LLMDataFields, LLMInputFields, LLMOutputFields, LLMParts } from './data/llm-record.js'
export { LogProbs, type SequenceFields } from './data/log-probs.js'
export { type LossBatchOptions, type LossBatchRows, lossBatch } from './data/loss-batch.js'
export { type MaskFields, Masks } from './data/masks.js'
export type { Nested } from './data/nested.js'
export {
  type GeneratedLogProbsOptions,
  generatedLogProbs,
  paddedLeftToRight,
  paddedRightToLeft,
} from './data/padded-rows.js'
export {
  PairwiseDataset,
  type PairwiseDatasetClass,
  type PairwiseDatasetFields,
  type PreTokenizationHookOptions,
  preTokenizationHook,
} from './data/pairwise-dataset.js'
export { PromptData, type PromptDataClass, type PromptDataFields } from './data/prompt-data.js'
export {
  PromptTensorDictTokenizer,
  type PromptTensorDictTokenizerOptions,
} from './data/prompt-tensor-dict-tokenizer.js'
export { RewardData, type RewardDataFields } from './data/reward-data.js'
export {
  type GeneratedRows,
  type RewardModelLike,
  RolloutFromModel,
  type RolloutFromModelOptions,
} from './data/rollout-from-model.js'
export type { SequenceSpec, SequencesOptions, TokenField } from './data/sequences.js'
export {
  BinaryDiscreteTensorSpec,
  BoundedTensorSpec,
  CompositeSpec,
  DiscreteTensorSpec,
  LazyStackedCompositeSpec,
  LazyStackedTensorSpec,
  MultiDiscreteTensorSpec,
  MultiOneHotDiscreteTensorSpec,
  NonTensorSpec,
  OneHotDiscreteTensorSpec,
  UnboundedContinuousTensorSpec,
  UnboundedDiscreteTensorSpec,
} from './data/spec-names.js'
export { TemplateTransform, type TemplateTransformOptions } from './data/template-transform.js'
export {
  type Ids,
  TensorDictTokenizer,
  type TensorDictTokenizerOptions,
} from './data/tensor-dict-tokenizer.js'
export { Text, type TextFields } from './data/text.js'
export {
  type PreTokenizationHook,
  type TextRow,
  type TokenDatasetOptions,
  TokenizedDatasetLoader,
  type TokenizedDatasetLoaderOptions,
} from './data/tokenized-dataset-loader.js'
export { Tokenizer, type TokenizerOptions } from './data/tokenizer.js'
export { Tokens } from './data/tokens.js'
export {
  AddThinkingPrompt,
  type AddThinkingPromptOptions,
  COGNITIVE_PROMPTS,
  THINKING_PROMPTS,
  withSecondThought,
} from './envs/add-thinking-prompt.js'
export { AnswerRewardTransform, type AnswerRewardTransformOptions } from './envs/answer-reward-transform.js'
export { BrowserTransform, type BrowserTransformOptions } from './envs/browser-transform.js'
export { ChatEnv, type ChatEnvOptions } from './envs/chat-env.js'
export { type ChatTaskOptions, chatTask, type MessageEnvOfOptions, messageEnvOf } from './envs/chat-task.js'
export type { ChatTurn, ChatTurnTransform } from './envs/chat-turn.js'
export { chatsAt } from './envs/chats-at.js'
export { CountdownEnv, type CountdownEnvOptions } from './envs/countdown-env.js'
export {
  DataLoadingPrimer,
  type DataLoadingPrimerOptions,
  type DataLoadingPrimerState,
  type DatasetRow,
} from './envs/data-loading-primer.js'
export { DatasetChatEnv, type DatasetChatEnvOptions } from './envs/dataset-chat-env.js'
export {
  type DictPolicy,
  type DictPolicyLike,
  type EnvBase,
  type EnvSpecs,
  type InputMode,
  nextRoot,
  type SpecEnvOptions,
  specEnvOf,
} from './envs/env.js'
export { ExecuteToolsInOrder, type ExecuteToolsInOrderOptions } from './envs/execute-tools-in-order.js'
export { type FitTableOptions, fitTable } from './envs/fit-table.js'
export { GSM8KEnv, type GSM8KEnvOptions } from './envs/gsm8k-env.js'
export { IFEvalEnv, type IFEvalEnvOptions } from './envs/ifeval-env.js'
export { IfEvalRewardTransform, type IfEvalRewardTransformOptions } from './envs/ifeval-reward-transform.js'
export { IncrementalTokenizer, type IncrementalTokenizerOptions } from './envs/incremental-tokenizer.js'
export { KLComputation, type KLComputationOptions, type KlPenaltyOptions } from './envs/kl-computation.js'
export { KLRewardTransform, type KLRewardTransformOptions } from './envs/kl-reward-transform.js'
export { LLMEnv, type LLMEnvOptions } from './envs/llm-env.js'
export { LLMHashingEnv, type LLMHashingEnvOptions } from './envs/llm-hashing-env.js'
export type { ScoringPolicy, TokenScoringOptions } from './envs/log-prob-rows.js'
export {
  GSM8KPrepareQuestion,
  type GSM8KPrepareQuestionOptions,
  type MakeGsm8kEnvOptions,
  makeGsm8kEnv,
} from './envs/make-gsm8k-env.js'
export {
  type MakeMLGymOptions,
  type MLGymTaskName,
  MLGymWrapper,
  type MLGymWrapperOptions,
  makeMLGym,
} from './envs/make-ml-gym.js'
export { MATHEnv, type MATHEnvOptions } from './envs/math-env.js'
export { MCPToolTransform, type MCPToolTransformOptions } from './envs/mcp-tool-transform.js'
export { type MLGymOptions, mlGym } from './envs/ml-gym.js'
export { MLGymEnv, type MLGymEnvOptions, type MLGymResult } from './envs/ml-gym-env.js'
export type { MLGymFailure } from './envs/ml-gym-score.js'
export type { MLGymFiles, MLGymProgram, MLGymTask } from './envs/ml-gym-task.js'
export { PolicyVersion, type PolicyVersionOptions } from './envs/policy-version.js'
export { PythonInterpreter, type PythonInterpreterOptions } from './envs/python-interpreter.js'
export { readMLGymTask } from './envs/read-ml-gym-task.js'
export { type ElementPrompt, type ReplyPolicyOptions, replyPolicy } from './envs/reply-policy.js'
export { RetrieveKL, type RetrieveKLOptions } from './envs/retrieve-kl.js'
export { RetrieveLogProb, type RetrieveLogProbOptions } from './envs/retrieve-log-prob.js'
export { type RolloutOptions, rollout } from './envs/rollout.js'
export { SimpleToolTransform, type SimpleToolTransformOptions } from './envs/simple-tool-transform.js'
export { StepCounter, type StepCounterOptions } from './envs/step-counter.js'
export { TaskChatEnv, type TaskChatEnvOptions, type TaskChatEnvState } from './envs/task-chat-env.js'
export type { TaskEnvOptions } from './envs/task-env.js'
export { type ToolAnswering, ToolTransform, type ToolTransformOptions } from './envs/tool-transform.js'
export { type EnvTransform, type EnvView, TransformedEnv } from './envs/transformed-env.js'
export { type DictTransform, type TurnTransformOptions, turnTransform } from './envs/turn-transform.js'
export type { GenerateKwargs } from './modules/generate-kwargs.js'
export { LLMOnDevice, type LLMOnDeviceOptions } from './modules/llm-on-device.js'
export { type DistOptions, type ForwardOptions, LLMWrapperBase, type RowPart } from './modules/llm-wrapper.js'
export { OnnxWrapper } from './modules/onnx-wrapper.js'
export { RemoteTransformersWrapper } from './modules/remote-transformers-wrapper.js'
export { TransformersWrapper } from './modules/transformers-wrapper.js'
export { vLLMWrapper } from './modules/vllm-wrapper.js'
export type { LLMWrapperOptions } from './modules/wrapper-options.js'
