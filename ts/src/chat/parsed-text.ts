/** Parsed completions as the core gives them. */

import type { ParsedResponse } from './renderer.js'

const [DIGIT_ZERO, BRACE] = [0x30, 0x7b]

/** Reads the text of `Parsed::to_text` in the core: a digit and the content, or JSON. */
export function fromText(text: string): ParsedResponse {
  const first = text.charCodeAt(0)
  if (first === BRACE) return JSON.parse(text)
  const bits = first - DIGIT_ZERO
  return {
    content: text.slice(1),
    reasoningContent: null,
    reasoningComplete: true,
    toolCalls: [],
    finished: (bits & 1) !== 0,
    overran: (bits & 2) !== 0,
  }
}
