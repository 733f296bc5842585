/** Calls between an opening tag and `</tool>`. */

import { argumentsOf, type ParsedCalls, type ToolCall } from './tool-call.js'

const CLOSE = '</tool>'

/**
 * Returns the calls after the matches of `opening`. The pattern must be global, linear in the text, and never
 * match within JSON: each body then ends before the next opening, and all bodies are read once.
 */
export function callBlocks(
  content: string,
  opening: RegExp,
  nameOf: (match: RegExpExecArray) => Pick<ToolCall, 'tool' | 'tag'>,
): ParsedCalls {
  const openings = [...content.matchAll(opening)]
  const calls: ToolCall[] = []
  const texts: string[] = []
  let end = 0
  openings.forEach((match, at) => {
    const start = match.index + match[0].length
    const block = readBody(content.slice(start, openings[at + 1]?.index))
    if (block === undefined) return
    calls.push({ ...nameOf(match), ...block.read })
    texts.push(content.slice(end, match.index))
    end = start + block.length
  })
  texts.push(content.slice(end))
  return { text: texts.join('').trim(), calls, meta: { count: calls.length } }
}

/**
 * Reads the arguments at the beginning of `text` and their end, including the closing tag; nothing without
 * one.
 */
function readBody(text: string) {
  const first = text.indexOf(CLOSE)
  if (first < 0) return undefined
  const outside = closeOutsideStrings(text)
  if (outside > first) {
    const read = argumentsOf(text.slice(0, outside))
    if (read.problem === undefined) return { read, length: outside + CLOSE.length }
  }
  return { read: argumentsOf(text.slice(0, first)), length: first + CLOSE.length }
}

/** Returns the index of the first closing tag outside JSON strings; -1 without one. */
function closeOutsideStrings(text: string): number {
  let isInside = false
  for (let at = 0; at < text.length; at++) {
    const char = text.charAt(at)
    if (char === '"') isInside = !isInside
    else if (isInside && char === '\\') at += 1
    else if (!isInside && char === '<' && text.startsWith(CLOSE, at)) return at
  }
  return -1
}
