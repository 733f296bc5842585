/** What samples tokens. */

export { DecoderPolicy } from './decoder.js'
export type { GenerateKwargs } from './generate-kwargs.js'
export { type ForwardOptions, LLMWrapperBase } from './llm-wrapper.js'
export {
  type Completion,
  checkGenerateRequest,
  checkScoreRequest,
  type FinishReason,
  type GenerateRequest,
  type Policy,
  type PolicyCapabilities,
  type ScoreRequest,
  type TokenScores,
} from './policy.js'
export { type BatchingOptions, type BatchingState, RequestBatcher } from './request-batcher.js'
export { ScriptedPolicy, type ScriptedPolicyOptions, type ScriptedReply } from './scripted.js'
export { TransformersWrapper } from './transformers-wrapper.js'
export type { LLMWrapperOptions } from './wrapper-options.js'
