/** Conversations to exact tokens and back. */

export {
  type ChatTemplateOptions,
  type DictChatOptions,
  type PaddedRows,
  type RenderingOptions,
  type TensorChatOptions,
  type TextChatOptions,
  toPadded,
  toRagged,
} from './apply-chat-template.js'
export { ContentBase, type ContentFields } from './content.js'
export {
  type ChatMlConfig,
  createRenderer,
  type DisposableRenderer,
  type RendererConfig,
} from './create-renderer.js'
export { type FromTextOptions, type GrowOptions, History, type HistorySpec, type Nested } from './history.js'
export { Ledger, type LedgerJson } from './ledger.js'
export { type MaskOptions, type MaskParts, type TokenMasks, tokenMasks } from './mask.js'
export type { ContentPart, Message } from './message.js'
export {
  type Bridge,
  type BridgeOptions,
  type BridgeRefusal,
  ORIGINS,
  type Origin,
  type ParsedResponse,
  type ParsedToolCall,
  type ParseOptions,
  type Rendered,
  type Renderer,
  type RenderOptions,
  type ToolCallStatus,
  type ToolSpec,
} from './renderer.js'
export type { BranchReason, Fork, LedgerSample, RecordedTurn, Segment, TrainingSample, Turn } from './turn.js'
