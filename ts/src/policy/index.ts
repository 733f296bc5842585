/** Policies that sample tokens. */

export { DecoderPolicy, type DecoderPolicyOptions } from './decoder.js'
export type { MessagePolicy, MessageReply, MessageRequest } from './message-policy.js'
export { OnnxPolicy, type OnnxPolicyOptions } from './onnx-policy.js'
export {
  type Completion,
  checkGenerateRequest,
  checkScoreRequest,
  type FinishReason,
  type GenerateRequest,
  type Policy,
  type PolicyCapabilities,
  type PolicyReport,
  type ScoreRequest,
  type TokenScores,
} from './policy.js'
export type { BatchingState } from './request-batcher.js'
export type { RequestRule } from './request-rule.js'
export type { WorkerCall, WorkerMessage, WorkerReply } from './serve-policy.js'
export type { WorkerThread } from './thread-policy.js'
export { type DistributionPolicy, type DistributionRequest, TokenDistribution } from './token-distribution.js'
export type { CompletionPart, StreamingPolicy, TokenStream } from './token-stream.js'
export type { WeightContext, WeightReceiver } from './weight-receiver.js'
export { WorkerPolicy, type WorkerPolicyOptions } from './worker-policy.js'
