/** Conversations to exact tokens and back. */

export {
  type ChatMlConfig,
  createRenderer,
  type DisposableRenderer,
  type RendererConfig,
} from './create-renderer.js'
export { History } from './history.js'
export { Ledger, type LedgerJson } from './ledger.js'
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
