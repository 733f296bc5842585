/** Calls as `<tool name="search" tag="a">{...}</tool>`. */

import { callBlocks } from './call-blocks.js'
import type { ParsedCalls, ToolCallParser } from './tool-call.js'

/** A longer name or tag opens no call. */
export const TOOL_NAME_CHARS_MAX = 256

const OPENING = new RegExp(
  `<tool\\s+name="([^"]{1,${TOOL_NAME_CHARS_MAX}})"(?:\\s+tag="([^"]{1,${TOOL_NAME_CHARS_MAX}})")?\\s*>`,
  'g',
)

/**
 * Reads calls written as `<tool name="search" tag="a">{"query": "x"}</tool>`: the name first, a tag if one likes, arguments as an object of
 * JSON or none. A `</tool>` within a text of the arguments does not end them. A block that is never closed is text.
 *
 * @example
 * ```ts
 * import { XMLBlockParser } from 'fulmar/tools'
 * import assert from 'node:assert/strict'
 *
 * const { text, calls } = new XMLBlockParser().parse('Let me look. <tool name="search" tag="a">{"query": "</tool>"}</tool>')
 * assert.equal(text, 'Let me look.')
 * assert.deepEqual(calls, [{ tool: 'search', args: { query: '</tool>' }, tag: 'a' }])
 * const [broken] = new XMLBlockParser().parse('<tool name="search">oops</tool>').calls
 * assert.deepEqual(broken?.args, { raw: 'oops' })
 * assert.match(broken?.problem ?? '', /must be an object of JSON/)
 * ```
 */
export class XMLBlockParser implements ToolCallParser {
  readonly example = '<tool name="NAME">ARGUMENTS</tool>'

  parse(content: string): ParsedCalls {
    return callBlocks(content, OPENING, ([, tool = '', tag = null]) => ({ tool, tag }))
  }
}
