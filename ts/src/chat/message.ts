/** Messages of chat APIs as open dictionaries: unknown keys pass through. */

import { FulmarError } from '../core/index.js'

/** One piece of a message's content. Text renderers take `type: 'text'` with `text`, and refuse other types. */
export interface ContentPart {
  /** Type of the part: `text`, `image_url`, ... */
  readonly type: string
  /** Whatever else the part holds. */
  readonly [key: string]: unknown
}

/**
 * One message: an OpenAI dictionary as it is. Unknown keys are kept.
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
export interface Message {
  /** Role of the author: `system`, `user`, `assistant` or `tool` in most families. */
  readonly role: string
  /** Text, a list of parts, or nothing (a message of tool calls only). */
  readonly content: string | null | readonly ContentPart[]
  /** Whatever else the message holds: `name`, `tool_call_id`, `reasoning_content`, ... */
  readonly [key: string]: unknown
}

/** Text that UTF-8 can hold: halves of surrogate pairs would silently become another character on the way to the core. */
export function wellFormed(text: string): string {
  const index = text.search(/\p{Surrogate}/u)
  if (index < 0) return text
  throw new FulmarError('MALFORMED', `text must be well-formed: got half a surrogate pair at index ${index}`)
}
