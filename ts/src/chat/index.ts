/** Conversations to exact tokens and back. */

export { Conversation, type ConversationOptions, type ConversationTurn } from './conversation.js'
export { createRenderer, type DisposableRenderer } from './create-renderer.js'
export { Ledger, type LedgerJson } from './ledger.js'
export { type MaskOptions, type MaskParts, type TokenMasks, tokenMasks } from './mask.js'
export type { ContentPart, Message } from './message.js'
export {
  type AttributedTokens,
  attributeTextSegments,
  contentMaskForRoles,
  contentTokenSpansByRole,
  extendPrompt,
  extractMessageToolNames,
  messageTokenSpans,
  rejectAssistantInExtension,
  roleTokenSpans,
  type SegmentOptions,
  type TextSegment,
  type TokenCountOptions,
  type TokenSpan,
  tokensByRole,
  tokensPerMessage,
  trimToTurnClose,
} from './rendered.js'
export {
  type Bridge,
  type BridgeOptions,
  type BridgeRefusal,
  type ConversationText,
  type Extension,
  type JsonList,
  ORIGINS,
  type Origin,
  type ParsedResponse,
  type ParsedToolCall,
  type ParseOptions,
  type PrefixStability,
  type Rendered,
  type Renderer,
  type RenderOptions,
  type ToolCallStatus,
  type ToolSpec,
} from './renderer.js'
export type {
  AutoConfig,
  ChatMlConfig,
  DeepseekR1Config,
  DeepseekV3Config,
  Glm45Config,
  GptOssConfig,
  KimiK2Config,
  Llama3Config,
  MinimaxM2Config,
  OpaqueConfig,
  Qwen3Config,
  Qwen25Config,
  Qwen35Config,
  Qwen36Config,
  RendererConfig,
  ThinkingRetention,
} from './renderer-config.js'
export {
  buildTrainingSample,
  buildTrajectoryStep,
  type RenderedTrainingSample,
  type TrainingSampleOptions,
  type TrajectoryStep,
  type TrajectoryStepOptions,
} from './training-sample.js'
export type { BranchReason, Fork, LedgerSample, RecordedTurn, Segment, TrainingSample, Turn } from './turn.js'
