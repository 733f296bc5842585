/** Calls as `<tool>`, a name, a newline, arguments, `</tool>`. */

import { callBlocks } from './call-blocks.js'
import type { ParsedCalls, ToolCallParser } from './tool-call.js'
import { TOOL_NAME_CHARS_MAX } from './xml-block-parser.js'

const OPENING = new RegExp(`<tool>([^\\n<]{1,${TOOL_NAME_CHARS_MAX}})\\n`, 'g')

/**
 * Parses calls written as `<tool>`, the name, a newline, optional arguments as a JSON object, `</tool>`: the
 * default of `SimpleToolTransform`.
 *
 * @example
 * ```ts
 * import { ToolBlockParser } from 'fulmar/tools'
 * import assert from 'node:assert/strict'
 *
 * const { calls } = new ToolBlockParser().parse('<tool>add\n{"a": 2, "b": 3}\n</tool> and <tool>now\n</tool>')
 * assert.deepEqual(calls.map(({ tool, args }) => [tool, args]), [['add', { a: 2, b: 3 }], ['now', {}]])
 * ```
 */
export class ToolBlockParser implements ToolCallParser {
  readonly example = '<tool>NAME\nARGUMENTS\n</tool>'

  parse(content: string): ParsedCalls {
    return callBlocks(content, OPENING, ([, tool = '']) => ({ tool: tool.trim(), tag: null }))
  }
}
