/** A request of an agent in no dialect: what each dialect's parser makes of a body. */

import type { ToolSpec } from '../chat/index.js'
import type { GenerateRequest } from '../policy/index.js'
import type { HistoryMessage } from './conversation.js'

/** Sampling that a request asks for. What the rollout itself sets comes first. */
export interface AskedSampling {
  readonly maxTokens?: number
  readonly temperature?: number
  readonly topP?: number
  readonly topK?: number
  readonly seed?: number
}

/** Rules of sampling that a rollout has none of its own of. */
export type AskedPenalties = Pick<
  GenerateRequest,
  'minP' | 'frequencyPenalty' | 'presencePenalty' | 'repetitionPenalty'
>

/** One request for one or more answers to a history. */
export interface AgentRequest {
  /** Name of the model, which is repeated. */
  readonly model: string
  /** Whole conversation, at least one message; the last is not the assistant's. */
  readonly history: readonly HistoryMessage[]
  readonly tools: readonly ToolSpec[]
  /** If false, calls in the answer stay text. */
  readonly allowsCalls: boolean
  /** Number of answers. */
  readonly numAnswers: number
  /** Texts that end an answer, and are not part of it. */
  readonly stop: readonly string[]
  readonly sampling: AskedSampling
  readonly penalties: AskedPenalties
  /** Number of alternatives of each token, `null` without log-probs. */
  readonly topLogProbs: number | null
  readonly streams: boolean
}
