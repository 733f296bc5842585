/** Conversations to exact tokens and back. */

export { ChatMlRenderer } from './chatml.js'
export { History } from './history.js'
export { Ledger, type LedgerJson } from './ledger.js'
export type { ContentPart, Message } from './message.js'
export {
  type Bridge,
  type BridgeRefusal,
  ORIGINS,
  type Origin,
  type ParsedResponse,
  type ParsedToolCall,
  type Rendered,
  type Renderer,
  type RenderOptions,
  type ToolCallStatus,
} from './renderer.js'
export type { BranchReason, Fork, LedgerSample, RecordedTurn, Segment, TrainingSample, Turn } from './turn.js'
