/** Completions of a model as messages of the conversation. */

import type { Message } from './message.js'
import type { ParsedResponse } from './renderer.js'

/** @internal Calls that can be used become the message's own; broken ones stay in its text. */
export function assistantMessage({ content, reasoningContent, toolCalls }: ParsedResponse): Message {
  const usable = toolCalls.filter(({ status }) => status === 'ok')
  const calls = usable.map(({ id, name, arguments: text }) => ({
    ...(id === null ? {} : { id }),
    type: 'function',
    function: { name, arguments: text },
  }))
  return {
    role: 'assistant',
    content,
    ...(reasoningContent ? { reasoning_content: reasoningContent } : {}),
    ...(calls.length > 0 ? { tool_calls: calls } : {}),
  }
}
