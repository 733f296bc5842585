/** Calls of tools as a policy writes them, and what reads them. */

import type { Message, ToolSpec } from '../chat/index.js'
import { checkGiven, describeValue, FulmarError, parseJson } from '../core/index.js'
import type { Json } from '../tensor/index.js'

/** Arguments by name, as JSON. */
export type ToolArguments = Readonly<Record<string, Json>>

/** A call as it was read. */
export interface ToolCall {
  /** The tool's name as the policy wrote it; empty if it wrote none. */
  readonly tool: string
  /**
   * The arguments that the tool receives; `{ raw }` with the text as it stands where that is no object of JSON. An integer that a number would print with
   * other digits, as most beyond 2^53 are, is a text of its digits.
   */
  readonly args: ToolArguments
  /** The policy's own name of the call, if it gives one. */
  readonly tag: string | null
  /** Which call of the message an answer is for, where the message says so. */
  readonly id?: string
  /** Why the call cannot be run; it is the call's answer then. */
  readonly problem?: string
}

/** The calls that a parser found. */
export interface ParsedCalls {
  /** The text without its calls. */
  readonly text: string
  /** In the order in which they stand. */
  readonly calls: readonly ToolCall[]
  readonly meta: { readonly count: number }
}

/** Finds calls in what a policy said. Takes any text, throws at none, and its time grows with the text's length alone. */
export interface ToolCallParser {
  parse(content: string): ParsedCalls
  /**
   * A call as the policy writes it, with `NAME` and `ARGUMENTS` in their places. See {@link toolInstructions}.
   * @default unknown: nothing tells the policy
   */
  readonly example?: string
}

/**
 * Describes tools in words, for a policy whose chat template has no form for them: what each does and takes, and how `parser` reads calls.
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
      `parser must have an example of a call: got ${describeValue(parser.example)}`,
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
 * The calls of a message: its own `tool_calls` if there are any, else those that `parser` finds in its text.
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

/** Arguments from their text: none for an empty one; `{ raw }` and a problem if it is no object of JSON. */
export function argumentsOf(text: string): Pick<ToolCall, 'args' | 'problem'> {
  const trimmed = text.trim()
  if (trimmed === '') return { args: {} }
  try {
    const value = parseJson(trimmed)
    if (isRecord(value)) return { args: value as ToolArguments }
  } catch {
    // Said below, with what is JSON but no object.
  }
  return {
    args: { raw: trimmed },
    problem: `arguments must be an object of JSON: got ${describeValue(trimmed)}`,
  }
}

/** Returns true for an object with names. */
export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Calls hold their function inside or are it; arguments are an object or its JSON. */
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

/** A value's JSON; what has none reads as no object. */
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

/** Refuses what finds no calls. @throws {FulmarError} `MALFORMED`. */
export function checkParser(parser: ToolCallParser | undefined): void {
  if (typeof parser?.parse === 'function') return
  throw new FulmarError('MALFORMED', `parser must have a function parse: got ${describeValue(parser)}`)
}
