/** Calls of tools in a policy's messages, and the interface of parsers. */

import type { Message, ToolSpec } from '../chat/index.js'
import { checkGiven, describeValue, FulmarError, parseJson } from '../core/index.js'
import type { Json } from '../tensor/index.js'

/** Arguments by name, as JSON. */
export type ToolArguments = Readonly<Record<string, Json>>

/** A parsed call. */
export interface ToolCall {
  /** The tool's name as the policy wrote it; empty if it wrote none. */
  readonly tool: string
  /**
   * Arguments for the tool; `{ raw }` with the unparsed text if it is not a JSON object. An integer that a
   * JavaScript number would change, as most beyond 2^53, is a text of its digits.
   */
  readonly args: ToolArguments
  /** Tag that the policy gave the call, if any. */
  readonly tag: string | null
  /** Id of the call, if the message has one; the answer repeats it. */
  readonly id?: string
  /** Reason why the call cannot run, which becomes its answer. */
  readonly problem?: string
}

/** Calls found by a parser. */
export interface ParsedCalls {
  /** The text without its calls. */
  readonly text: string
  /** Calls in order. */
  readonly calls: readonly ToolCall[]
  readonly meta: { readonly count: number }
}

/** Parses calls in a policy's text. Accepts any text, never throws, and takes time linear in its length. */
export interface ToolCallParser {
  parse(content: string): ParsedCalls
  /**
   * Example of a call, with the placeholders `NAME` and `ARGUMENTS`. See {@link toolInstructions}.
   * @default unknown: the policy gets no example
   */
  readonly example?: string
}

/**
 * Describes tools in words, for a policy whose chat template does not support tools: purpose and arguments of
 * each, and the form of a call for `parser`.
 *
 * @throws {FulmarError} `MALFORMED` for a parser without an `example`.
 *
 * @example
 * ```ts
 * import { toolInstructions, XMLBlockParser } from 'fulmar/tools'
 * import assert from 'node:assert/strict'
 *
 * const specs = [{ type: 'function', function: { name: 'now', description: 'The time.', parameters: { type: 'object' } } }]
 * const text = toolInstructions(specs, new XMLBlockParser())
 * assert.match(text, /"name":"now"/)
 * assert.match(text, /<tool name="NAME">ARGUMENTS<\/tool>/)
 * ```
 */
export function toolInstructions(specs: readonly ToolSpec[], parser: ToolCallParser): string {
  checkParser(parser)
  if (typeof parser.example !== 'string')
    throw new FulmarError(
      'MALFORMED',
      `parser must have an example of a call as text: got ${describeValue(parser.example)}`,
    )
  return [
    'You may call these tools, each described by a line of JSON:',
    ...specs.map((spec) => JSON.stringify(spec.function ?? spec)),
    'To call one, write its name and its arguments as an object of JSON, in this form:',
    parser.example,
    'Its result is in the next message.',
  ].join('\n')
}

/**
 * Returns the calls of a message: its `tool_calls` if there are any, else those that `parser` finds in its
 * text.
 *
 * @example
 * ```ts
 * import { toolCallsOf, XMLBlockParser } from 'fulmar/tools'
 * import assert from 'node:assert/strict'
 *
 * const call = { id: 'c1', type: 'function', function: { name: 'add', arguments: '{"a": 1}' } }
 * const [own] = toolCallsOf({ role: 'assistant', content: null, tool_calls: [call] })
 * assert.deepEqual(own, { tool: 'add', args: { a: 1 }, tag: null, id: 'c1' })
 * const said = { role: 'assistant', content: '<tool name="add">{"a": 1}</tool>' }
 * assert.deepEqual(toolCallsOf(said), [])
 * assert.deepEqual(toolCallsOf(said, new XMLBlockParser()), [{ tool: 'add', args: { a: 1 }, tag: null }])
 * ```
 */
export function toolCallsOf(message: Message, parser?: ToolCallParser): readonly ToolCall[] {
  checkGiven('message', message)
  const own: unknown = message.tool_calls
  if (Array.isArray(own) && own.length > 0) return own.map(ownCall)
  return parser === undefined ? [] : parser.parse(textOf(message)).calls
}

/** Parses arguments: none for an empty text; `{ raw }` and a problem if it is not a JSON object. */
export function argumentsOf(text: string): Pick<ToolCall, 'args' | 'problem'> {
  const trimmed = text.trim()
  if (trimmed === '') return { args: {} }
  try {
    const value = parseJson(trimmed)
    if (isRecord(value)) return { args: value as ToolArguments }
  } catch {
    // Reported below, together with JSON that is not an object.
  }
  return {
    args: { raw: trimmed },
    problem: `arguments must be an object of JSON: got ${describeValue(trimmed)}`,
  }
}

/** Returns true for an object with string keys. */
export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Reads a call, whose fields are nested in `function` or at the top; arguments are an object or its JSON. */
function ownCall(raw: unknown): ToolCall {
  const call = isRecord(raw) ? raw : {}
  const inner = isRecord(call.function) ? call.function : call
  const { name, arguments: given = '' } = inner
  const read = argumentsOf(typeof given === 'string' ? given : jsonOf(given))
  return {
    tool: typeof name === 'string' ? name : '',
    ...read,
    tag: null,
    ...(typeof call.id === 'string' && { id: call.id }),
  }
}

/** Returns the JSON of a value; a value without JSON parses as a non-object. */
function jsonOf(value: unknown): string {
  try {
    return JSON.stringify(value) ?? typeof value
  } catch {
    return typeof value
  }
}

function textOf({ content }: Message): string {
  if (typeof content === 'string') return content
  return (content ?? []).map(({ text }) => (typeof text === 'string' ? text : '')).join('')
}

/** Rejects values that are not parsers. @throws {FulmarError} `MALFORMED`. */
export function checkParser(parser: ToolCallParser | undefined): void {
  if (typeof parser?.parse === 'function') return
  throw new FulmarError('MALFORMED', `parser must have a function parse: got ${describeValue(parser)}`)
}
