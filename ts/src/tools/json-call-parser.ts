/** Calls as one JSON object. */

import { describeValue, parseJson } from '../core/index.js'
import {
  isRecord,
  type ParsedCalls,
  type ToolArguments,
  type ToolCall,
  type ToolCallParser,
} from './tool-call.js'

/**
 * Parses a text that is JSON as a whole, `{"message": "...", "tools": [{"tool": "search", "args": {...},
 * "tag": "a"}]}`, or such an object. Any other text is a message without calls.
 *
 * @example
 * ```ts
 * import { JSONCallParser } from 'fulmar/tools'
 * import assert from 'node:assert/strict'
 *
 * const parser = new JSONCallParser()
 * const { text, calls } = parser.parse('{"message": "Looking.", "tools": [{"tool": "search", "args": {"query": "x"}}]}')
 * assert.equal(text, 'Looking.')
 * assert.deepEqual(calls, [{ tool: 'search', args: { query: 'x' }, tag: null }])
 * assert.deepEqual(parser.parse('[1, 2]'), { text: '[1, 2]', calls: [], meta: { count: 0 } })
 * ```
 */
export class JSONCallParser implements ToolCallParser {
  readonly example = '{"message": "TEXT", "tools": [{"tool": "NAME", "args": ARGUMENTS}]}'

  parse(content: string | Readonly<Record<string, unknown>>): ParsedCalls {
    const value = typeof content === 'string' ? parsed(content) : content
    if (!isRecord(value)) return { text: String(content), calls: [], meta: { count: 0 } }
    const { message, tools = [] } = value
    const calls = Array.isArray(tools)
      ? tools.map(callOf)
      : [broken(`tools must be a list of calls: got ${describeValue(tools)}`)]
    return { text: typeof message === 'string' ? message : '', calls, meta: { count: calls.length } }
  }
}

function parsed(text: string): unknown {
  try {
    return parseJson(text)
  } catch {
    return undefined
  }
}

function callOf(value: unknown, at: number): ToolCall {
  if (!isRecord(value) || typeof value.tool !== 'string') {
    return broken(`tools[${at}] must be an object with a name as tool: got ${describeValue(value)}`)
  }
  const { tool, args = {}, tag } = value
  const call = { tool, tag: typeof tag === 'string' ? tag : null }
  if (isRecord(args)) return { ...call, args: args as ToolArguments }
  return { ...call, args: {}, problem: `arguments must be an object of JSON: got ${describeValue(args)}` }
}

function broken(problem: string): ToolCall {
  return { tool: '', args: {}, tag: null, problem }
}
