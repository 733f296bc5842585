/** Completions as the messages that clients get. */

import { assistantMessage } from '../chat/assistant-message.js'
import type { Message, ParsedResponse } from '../chat/index.js'
import type { Completion } from '../policy/index.js'
import type { AgentRequest } from './agent-request.js'
import type { SentCall } from './message-key.js'

/** One answer to a request. */
export interface Answer {
  /** Index among the answers to its request. */
  readonly index: number
  readonly content: string
  readonly reasoning: string | null
  readonly calls: readonly SentCall[]
  readonly finishReason: 'stop' | 'length' | 'tool_calls'
  readonly completion: Completion
  /** Likeliest tokens at each position, if they were asked for. */
  readonly top: readonly (readonly TopToken[])[] | null
}

/** A token and its log-probability. */
export interface TopToken {
  readonly id: number
  readonly logProb: number
}

/** The text of an answer so far, or of a whole one. */
export interface AnswerText {
  readonly content: string
  readonly reasoning: string
  readonly calls: ParsedResponse['toolCalls']
}

/** Returns the texts of a parsed completion: without a stop text, and with calls that cannot be used in the content. */
export function textsOf(parsed: ParsedResponse, request: AgentRequest): AnswerText {
  const usable = request.allowsCalls ? parsed.toolCalls.filter(({ status }) => status === 'ok') : []
  const isLeft = !request.allowsCalls && parsed.toolCalls.length > 0
  const raw = isLeft ? parsed.toolCalls.map((call) => call.raw) : []
  const text = [parsed.content, ...raw].filter((part) => part !== '').join('\n')
  return { content: beforeStop(text, request.stop), reasoning: parsed.reasoningContent ?? '', calls: usable }
}

/** Returns the message that the renderer would write for these tokens again. */
export function storedMessage(parsed: ParsedResponse): Message {
  return assistantMessage(parsed)
}

/** Returns the message that a client adds to its history. */
export function deliveredMessage({ content, reasoning, calls }: Omit<Answer, 'completion' | 'top'>): Message {
  return {
    role: 'assistant',
    content,
    ...(reasoning !== null && { reasoning_content: reasoning }),
    ...(calls.length > 0 && { tool_calls: calls }),
  }
}

/** Returns the calls as clients get them: with the model's ids, or with ids of this turn where its family has none. */
export function sentCalls(calls: AnswerText['calls'], turnId: number): SentCall[] {
  return calls.map(({ id, name, arguments: text }, index) => ({
    id: id ?? `call_${turnId}_${index}`,
    type: 'function',
    function: { name: name ?? '', arguments: text ?? '{}' },
  }))
}

function beforeStop(text: string, stop: readonly string[]): string {
  const ends = stop.map((stopText) => text.indexOf(stopText)).filter((at) => at >= 0)
  return ends.length === 0 ? text : text.slice(0, Math.min(...ends))
}
