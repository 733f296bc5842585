/**
 * Execution of the calls of one message: each with a deadline and limits, and always with an answer.
 *
 * ```text
 * call -> readable? -> known? -> not too long? -> fits the schema? -> run under the deadline -> JSON? -> not too long? -> answer
 * ```
 */

import { Slots, withDeadline } from '../async/index.js'
import type { Message } from '../chat/index.js'
import { checkKnownKeys, describeValue, FulmarError, messageOf } from '../core/index.js'
import { type Clock, systemClock, TIMER_DELAY_MS_MAX } from '../telemetry/index.js'
import type { Json } from '../tensor/index.js'
import type { ToolCall } from './tool-call.js'
import { ToolContent } from './tool-content.js'
import { type Tool, type ToolContext, ToolRegistry } from './tool-registry.js'

/** Limits on the calls of one message. */
export interface ToolLimits {
  /**
   * Deadline of each call in milliseconds, from its start. Cannot stop a tool that blocks the event loop.
   * @default 10_000
   */
  readonly timeoutMs?: number
  /** Maximum number of calls of one message that run; one answer reports the excess. @default 16 */
  readonly maxCalls?: number
  /** Maximum length of a call's arguments as JSON. @default 65_536 */
  readonly maxArgumentChars?: number
  /** Maximum length of a tool's result as JSON. @default 65_536 */
  readonly maxResultChars?: number
  /** Maximum number of concurrent calls, over all conversations. @default 16 */
  readonly maxConcurrent?: number
  /** Clock of the deadlines. @default systemClock */
  readonly clock?: Clock
}

/** Options of {@link ToolRunner}. */
export interface ToolRunnerOptions extends ToolLimits {
  readonly tools: ToolRegistry | Iterable<Tool>
}

/** Result of a call. */
export type ToolResult =
  /** `isContent`: the value is a list of content parts, which the tool gave as a {@link ToolContent}. */
  | { readonly ok: true; readonly call: ToolCall; readonly value: Json; readonly isContent?: true }
  /**
   * `MALFORMED`: its arguments could not be read or do not fit the schema. `UNKNOWN_NAME`: there is no such tool. `LIMIT_EXCEEDED`: too
   * many calls, arguments or results too long or too deep. `TIMEOUT`: the deadline passed. `USER_CODE`: the tool threw, or returned a value that is not JSON.
   */
  | { readonly ok: false; readonly call: ToolCall; readonly error: FulmarError }

/** Options of {@link ToolRunner.run}. */
export interface ToolRunOptions {
  /** Conversation up to the calls, for tools that read it. */
  readonly messages: readonly Message[]
  /** If true, runs the calls one after another. @default false */
  readonly inOrder?: boolean
  /** If true, calls in order stop after the first failure. @default false */
  readonly stopOnError?: boolean
  /** Stops all calls. */
  readonly signal?: AbortSignal | undefined
  /** Fires when the conversation ends: the same object for all its calls. Tools that keep state need it. */
  readonly conversation?: AbortSignal | undefined
}

/** Number of characters of a tool's error message that are passed on. */
export const TOOL_ERROR_CHARS_MAX = 2_000

/** Maximum nesting depth of arguments and results. */
export const TOOL_JSON_DEPTH_MAX = 64

/** The keys of {@link ToolLimits}. */
export const TOOL_LIMIT_KEYS = [
  'timeoutMs',
  'maxCalls',
  'maxArgumentChars',
  'maxResultChars',
  'maxConcurrent',
  'clock',
] as const

/**
 * Runs calls of tools.
 *
 * @example
 * ```ts
 * import { ToolRunner } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const runner = new ToolRunner({ tools: [{ name: 'half', run: ({ of }) => Number(of) / 2 }, { name: 'fail', run: () => { throw new Error('boom') } }] })
 * const calls = [{ tool: 'half', args: { of: 3 }, tag: null }, { tool: 'fail', args: {}, tag: null }]
 * const [half, fail] = await runner.run(calls, { messages: [] })
 * assert.equal(half?.ok && half.value, 1.5)
 * assert.equal(fail?.ok === false && fail.error.message, 'boom')
 * ```
 */
export class ToolRunner {
  readonly tools: ToolRegistry
  readonly #limits: Required<ToolLimits>
  readonly #slots: Slots

  /** @throws {FulmarError} `OUT_OF_RANGE` for a limit that is not a positive integer; `UNKNOWN_NAME` for an unknown option; errors of a registry for a tool. */
  constructor(options: ToolRunnerOptions) {
    checkKnownKeys('options', options, ['tools', ...TOOL_LIMIT_KEYS])
    const {
      tools,
      timeoutMs = 10_000,
      maxCalls = 16,
      maxArgumentChars = 65_536,
      maxResultChars = 65_536,
    } = options
    const { maxConcurrent = 16, clock = systemClock } = options
    const limits = { timeoutMs, maxCalls, maxArgumentChars, maxResultChars, maxConcurrent }
    for (const [name, value] of Object.entries(limits)) {
      if (Number.isSafeInteger(value) && value >= 1 && value <= TIMER_DELAY_MS_MAX) continue
      throw new FulmarError(
        'OUT_OF_RANGE',
        `${name} must be an integer from 1 to ${TIMER_DELAY_MS_MAX}: got ${value}`,
      )
    }
    this.tools = tools instanceof ToolRegistry ? tools : new ToolRegistry(tools)
    this.#limits = { ...limits, clock }
    this.#slots = new Slots(maxConcurrent)
  }

  /**
   * Returns a result for each call, in the order of the calls; one more reports calls above the limit.
   * @throws {FulmarError} `ABORTED` if `signal` fires. Never for text of a policy or an error of a tool.
   */
  async run(calls: readonly ToolCall[], options: ToolRunOptions): Promise<readonly ToolResult[]> {
    checkKnownKeys(
      'options',
      options,
      ['messages', 'inOrder', 'stopOnError', 'signal', 'conversation'],
      ['messages'],
    )
    const { maxCalls } = this.#limits
    const allowed = calls.slice(0, maxCalls)
    const results = options.inOrder
      ? await this.#runInOrder(allowed, options)
      : await Promise.all(allowed.map((call) => this.#runOne(call, options)))
    const first = calls[maxCalls]
    if (first === undefined || results.length < maxCalls) return results
    const problem = `a message must have at most ${maxCalls} calls: got ${calls.length}, and only the first ones ran`
    return [...results, failed(first, 'LIMIT_EXCEEDED', problem)]
  }

  async #runInOrder(calls: readonly ToolCall[], options: ToolRunOptions): Promise<ToolResult[]> {
    const results: ToolResult[] = []
    for (const call of calls) {
      const result = await this.#runOne(call, options)
      results.push(result)
      if (!result.ok && options.stopOnError) break
    }
    return results
  }

  async #runOne(call: ToolCall, options: ToolRunOptions): Promise<ToolResult> {
    const { problem, tool: name } = call
    if (problem !== undefined) return failed(call, 'MALFORMED', problem)
    if (!this.tools.has(name)) return failed(call, 'UNKNOWN_NAME', this.tools.refusalOf(name))
    const given = jsonWithin('arguments', call.args, this.#limits.maxArgumentChars)
    if ('rule' in given) return failed(call, given.isNoJson ? 'MALFORMED' : 'LIMIT_EXCEEDED', given.rule)
    return await this.#slots.run(() => this.#ask(call, JSON.parse(given.text), options))
  }

  async #ask(
    call: ToolCall,
    args: unknown,
    { messages, signal, conversation }: ToolRunOptions,
  ): Promise<ToolResult> {
    const { clock, timeoutMs } = this.#limits
    const answer = await withDeadline({
      clock,
      timeoutMs,
      signal,
      run: async (context) => {
        const checked = await this.tools.check(call.tool, args)
        if (!checked.ok) return { problem: checked.problem }
        if (context.signal.aborted) return { problem: 'no answer of its check in time' }
        return {
          value: await this.tools
            .get(call.tool)
            .run(checked.value, contextOf(context, messages, conversation)),
        }
      },
    })
    if (answer.kind === 'timeout')
      return failed(call, 'TIMEOUT', `must end within ${timeoutMs} ms: got no answer`)
    if (answer.kind === 'thrown') return failed(call, 'USER_CODE', sentenceOf(answer.error), answer.error)
    const { problem, value } = answer.value
    if (problem !== undefined)
      return failed(call, 'MALFORMED', `arguments must fit the schema: got ${problem}`)
    return this.#answered(call, value)
  }

  #answered(call: ToolCall, value: unknown): ToolResult {
    const isContent = value instanceof ToolContent
    const given = jsonWithin('result', isContent ? value.parts : value, this.#limits.maxResultChars)
    if ('rule' in given) return failed(call, given.isNoJson ? 'USER_CODE' : 'LIMIT_EXCEEDED', given.rule)
    return { ok: true, call, value: JSON.parse(given.text), ...(isContent && { isContent }) }
  }
}

/** Makes text of a tool or a policy well-formed for templates and tokenizers. */
export function wellFormedText(text: string): string {
  return text.replace(/\p{Surrogate}/gu, '\uFFFD')
}

function failed(call: ToolCall, code: FulmarError['code'], message: string, cause?: unknown): ToolResult {
  const shown = wellFormedText(message.slice(0, TOOL_ERROR_CHARS_MAX))
  return { ok: false, call, error: new FulmarError(code, shown, { cause }) }
}

/** Creates both on first access: most tools use neither. */
function contextOf(
  context: { readonly signal: AbortSignal },
  messages: readonly Message[],
  conversation: AbortSignal | undefined,
): ToolContext {
  return {
    conversation,
    get signal() {
      return context.signal
    },
    get messages() {
      return structuredClone(messages)
    },
  }
}

/** Describes anything that was thrown, even if reading it throws. */
function sentenceOf(error: unknown): string {
  try {
    return String(messageOf(error))
  } catch {
    return 'an error that cannot be read'
  }
}

/** Returns a value as JSON, or the rule that it breaks. */
function jsonWithin(name: string, value: unknown, maxChars: number): { readonly text: string } | BrokenRule {
  let text: string | undefined
  try {
    text = JSON.stringify(value, refuseWhatIsNoJson)
  } catch (error) {
    return { rule: `${name} must be JSON: got ${sentenceOf(error)}`, isNoJson: true }
  }
  if (text === undefined) return { rule: `${name} must be JSON: got ${describeValue(value)}`, isNoJson: true }
  if (text.length > maxChars) {
    return { rule: `${name} must have ${maxChars} characters at most: got ${text.length}`, isNoJson: false }
  }
  const depth = depthOf(text)
  if (depth <= TOOL_JSON_DEPTH_MAX) return { text }
  return { rule: `${name} must be nested ${TOOL_JSON_DEPTH_MAX} deep at most: got ${depth}`, isNoJson: false }
}

interface BrokenRule {
  readonly rule: string
  /** True for a value that is not JSON, false for one that is too large. */
  readonly isNoJson: boolean
}

/** Returns the nesting depth of lists and objects in JSON text. */
function depthOf(text: string): number {
  let [depth, deepest, isInText] = [0, 0, false]
  for (let at = 0; at < text.length; at++) {
    const char = text.charAt(at)
    if (char === '"') isInText = !isInText
    else if (isInText) at += char === '\\' ? 1 : 0
    else if (char === '[' || char === '{') deepest = Math.max(deepest, ++depth)
    else if (char === ']' || char === '}') depth -= 1
  }
  return deepest
}

function refuseWhatIsNoJson(key: string, value: unknown): unknown {
  const isPlain = typeof value !== 'object' || value === null || Array.isArray(value) || isPlainObject(value)
  const isWrong =
    typeof value === 'function' ||
    typeof value === 'symbol' ||
    (typeof value === 'number' && !Number.isFinite(value))
  if (isPlain && !isWrong) return value
  const place = key === '' ? '' : ` at ${describeValue(key)}`
  throw new FulmarError('MALFORMED', `${describeValue(value)}${place}`)
}

function isPlainObject(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === null || Object.getPrototypeOf(prototype) === null
}
