/** Calls as `<tool name="search" tag="a">{...}</tool>`. */

import { callBlocks } from './call-blocks.js'
import type { ParsedCalls, ToolCallParser } from './tool-call.js'

/** Maximum length of a name or tag; a longer one does not begin a call. */
export const TOOL_NAME_CHARS_MAX = 256

const OPENING = new RegExp(
  `<tool\\s+name="([^"]{1,${TOOL_NAME_CHARS_MAX}})"(?:\\s+tag="([^"]{1,${TOOL_NAME_CHARS_MAX}})")?\\s*>`,
  'g',
)

/**
 * Parses calls written as `<tool name="search" tag="a">{"query": "x"}</tool>`: the name, an optional tag,
 * optional arguments as a JSON object. A `</tool>` within a text of the arguments does not end them. An
 * unclosed block is text.
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
