/** Messages of chat APIs as open dictionaries: unknown keys pass through. */

import { describeValue, FulmarError } from '../core/index.js'

/**
 * One part of a message's content. Text renderers accept `type: 'text'` with `text`, and refuse other types. The parts
 * of OpenAI's and of the `ai` package's messages are assignable; a literal may have any further key.
 */
export type ContentPart =
  | {
      /** Type of the part: `text`, `image_url`, ... */
      readonly type: string
      /** Text of a part of type `text`. */
      readonly text?: unknown
    }
  | {
      readonly type: string
      /** Further keys, which are kept. */
      readonly [key: string]: unknown
    }

/**
 * One message of a chat API, kept with all of its keys. The `ChatCompletionMessageParam` of the package `openai` and
 * the `ModelMessage` of the package `ai` are assignable; a literal may have any further key. To read a key that is not
 * listed here, test it first: `'thinking' in message`.
 *
 * @example
 * ```ts
 * import { History } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const message = { role: 'user', content: 'Hi', name: 'Ada' }
 * assert.deepEqual(History.fromChats([message]).messages[0], message)
 * ```
 */
export type Message =
  | {
      /** Role of the author: `system`, `user`, `assistant` or `tool` in most families. */
      readonly role: string
      /** Text or a list of parts; `null` or absent in a message of tool calls only. */
      readonly content?: string | null | readonly ContentPart[] | undefined
      /** Name of the author, or of the tool that a `tool` message answers for. */
      readonly name?: unknown
      /** Calls of an assistant: `{ id, type: 'function', function: { name, arguments } }`. */
      readonly tool_calls?: unknown
      /** Id of the call that a `tool` message answers. */
      readonly tool_call_id?: unknown
      /** Reasoning before the content of an assistant. */
      readonly reasoning_content?: unknown
      /** False while the message is still being written. */
      readonly is_complete?: unknown
      /** Of the `UIMessage` of the package `ai`, which its `convertToModelMessages` makes messages of. */
      readonly parts?: undefined
    }
  | {
      readonly role: string
      readonly content?: string | null | readonly ContentPart[] | undefined
      /** Further keys, which are kept. */
      readonly [key: string]: unknown
    }

/** Keys that hold the content of a message for other programs, and what to use instead. */
const ELSEWHERE = {
  parts: 'convert the messages of `ai` with its convertToModelMessages',
  refusal: 'put its text into content',
  function_call: 'put it into tool_calls',
  toolCalls: 'put it into tool_calls',
  toolCallId: 'put it into tool_call_id',
  reasoningContent: 'put it into reasoning_content',
  audio: 'put its transcript into content',
} as const

/** @throws {FulmarError} `INCOMPATIBLE` if the message has content where no renderer of a family looks for it. */
export function checkContentPlace(message: Readonly<Record<string, unknown>>, index: number): void {
  for (const [key, hint] of Object.entries(ELSEWHERE)) {
    const value = message[key]
    if (value === undefined || value === null || value === '') continue
    const rule = `messages[${index}].${key} must be absent or empty in a text conversation`
    throw new FulmarError('INCOMPATIBLE', `${rule}: got ${describeValue(value)}; ${hint}`)
  }
}

/** Text that UTF-8 can hold: halves of surrogate pairs would silently become another character on the way to the core. */
export function wellFormed(text: string): string {
  const index = text.search(/\p{Surrogate}/u)
  if (index < 0) return text
  throw new FulmarError('MALFORMED', `text must be well-formed: got half a surrogate pair at index ${index}`)
}
