/** Parsed completions as the core gives them. */

import type { ParsedResponse, ParsedToolCall } from './renderer.js'

/** Code of the character of no flags. */
const NO_FLAGS = 0x30
const [FINISHED, OVERRAN, IS_OPEN, HAS_REASONING, HAS_CALLS] = [1, 2, 4, 8, 16]

/** Reads the text of `Parsed::to_text` in the core. Calls are read from JSON on their first use. */
export function fromText(text: string): ParsedResponse {
  const flags = text.charCodeAt(0) - NO_FLAGS
  const [reasoningComplete, finished] = [(flags & IS_OPEN) === 0, (flags & FINISHED) !== 0]
  const overran = (flags & OVERRAN) !== 0
  if ((flags & (HAS_REASONING | HAS_CALLS)) === 0) {
    const content = text.slice(1)
    return { content, reasoningContent: null, reasoningComplete, toolCalls: [], finished, overran }
  }
  const comma = text.indexOf(',')
  const start = text.indexOf(',', comma + 1) + 1
  const reasoningStart = start + Number(text.slice(1, comma))
  const reasoningEnd = reasoningStart + Number(text.slice(comma + 1, start - 1))
  const content = text.slice(start, reasoningStart)
  const reasoningContent = (flags & HAS_REASONING) === 0 ? null : text.slice(reasoningStart, reasoningEnd)
  if ((flags & HAS_CALLS) === 0)
    return { content, reasoningContent, reasoningComplete, toolCalls: [], finished, overran }
  let calls: readonly ParsedToolCall[] | undefined
  return {
    content,
    reasoningContent,
    reasoningComplete,
    get toolCalls() {
      const read: readonly ParsedToolCall[] = calls ?? JSON.parse(text.slice(reasoningEnd))
      calls = read
      return read
    },
    finished,
    overran,
  }
}
