/** Fenced blocks of Python as calls of the tool `python`. */

import type { ParsedCalls, ToolCall, ToolCallParser } from './tool-call.js'

const OPENING = /```python[ \t]*\r?\n/g
/** A fence closes a block at the beginning of a line alone. */
const CLOSING = '\n```'

/**
 * Reads each fenced block of Python, from the line behind the opening fence to the next line that begins with a fence,
 * as a call of the tool `python` with its `code`. A block without an end, and blocks of other languages, are text.
 *
 * @example
 * ```ts
 * import { PythonBlockParser } from 'fulmar/tools'
 * import assert from 'node:assert/strict'
 *
 * const fence = '`'.repeat(3)
 * const { text, calls } = new PythonBlockParser().parse(`Let me see. ${fence}python\nprint(1 + 1)\n${fence}`)
 * assert.equal(text, 'Let me see.')
 * assert.deepEqual(calls, [{ tool: 'python', args: { code: 'print(1 + 1)' }, tag: null }])
 * ```
 */
export class PythonBlockParser implements ToolCallParser {
  parse(content: string): ParsedCalls {
    const calls: ToolCall[] = []
    const texts: string[] = []
    let end = 0
    for (const match of content.matchAll(OPENING)) {
      const start = match.index + match[0].length
      if (match.index < end) continue
      const close = content.indexOf(CLOSING, start)
      if (close < 0) break
      calls.push({ tool: 'python', args: { code: content.slice(start, close).trimEnd() }, tag: null })
      texts.push(content.slice(end, match.index))
      end = close + CLOSING.length
    }
    texts.push(content.slice(end))
    return { text: texts.join('').trim(), calls, meta: { count: calls.length } }
  }
}
