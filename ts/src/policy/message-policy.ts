/** The interface of language models that take and give messages, not tokens: servers of other programs. */

import type { Message, ToolSpec } from '../chat/index.js'
import type { FinishReason } from './policy.js'

/** One request for one message. A field that is absent is left to the model's own default. */
export interface MessageRequest {
  /** Id, unique within the run, for logs and servers. */
  readonly requestId: string
  /** Conversation, at least one message. */
  readonly messages: readonly Message[]
  /** Tools that the model may call. */
  readonly tools: readonly ToolSpec[]
  /** Seed of the draws, a non-negative safe integer. A server may ignore it. */
  readonly seed: number
  /** Maximum number of sampled tokens. At least 1. */
  readonly maxTokens?: number
  /** Divisor of the logits before sampling. */
  readonly temperature?: number
  /** Conversation of the request. */
  readonly sessionId?: string
  /** Rejects the call with `ABORTED`. */
  readonly signal?: AbortSignal
}

/** Answer of a model in messages. */
export interface MessageReply {
  /** Message of the assistant, with its tool calls if any. */
  readonly message: Message
  /** Reason why it ended. */
  readonly finishReason: FinishReason
  /** Number of tokens of the prompt; `null` if the server did not tell. */
  readonly numPromptTokens: number | null
  /** Number of sampled tokens; `null` if the server did not tell. */
  readonly numCompletionTokens: number | null
}

/**
 * A model that is known by its messages alone. It can be evaluated, but nothing can be trained on its answers:
 * they have neither token ids nor log-probs.
 *
 * @example
 * ```ts
 * import { defineTask, evaluate, reward } from 'fulmar'
 * import type { MessagePolicy } from 'fulmar/policy'
 * import assert from 'node:assert/strict'
 *
 * const echo: MessagePolicy = {
 *   reply: async ({ messages }) => ({
 *     message: { role: 'assistant', content: String(messages.at(-1)?.content) },
 *     finishReason: 'stop',
 *     numPromptTokens: null,
 *     numCompletionTokens: null,
 *   }),
 * }
 * const task = defineTask({ rows: ['a', 'b'], prompt: String, rewards: [reward<string>('same', ({ text, sample }) => text === sample)] })
 * const { passRate } = await evaluate({ model: echo, task, numProblems: 2 })
 * assert.equal(passRate, 1)
 * ```
 */
export interface MessagePolicy {
  /**
   * Answers a conversation.
   * @throws {FulmarError} `ABORTED` if the signal fires; others if there is no valid answer. The error ends the
   * rollout, which is then unscored or scored as the options of the evaluation say.
   */
  reply(request: MessageRequest): Promise<MessageReply>
}
