/** Tools by name. */

import { type Schema, Validator } from '@cfworker/json-schema'
import type { Message, ToolSpec } from '../chat/index.js'
import { checkKnownKeys, describeValue, FulmarError, nearestName } from '../core/index.js'
import type { ToolArguments } from './tool-call.js'

/** Context of a call for the tool. */
export interface ToolContext {
  /** Fires at the call's deadline, and if the turn is stopped. */
  readonly signal: AbortSignal
  /** Conversation up to the call: a copy made on first access. */
  readonly messages: readonly Message[]
  /**
   * Fires when the conversation of the call ends. All calls of a conversation have the same object, so a tool may keep
   * state under it. `undefined` if the caller of the runner gave none.
   */
  readonly conversation: AbortSignal | undefined
}

/** A validator of Standard Schema (version 1), such as a schema of zod, valibot or arktype. */
export interface StandardSchema<Output = unknown> {
  readonly '~standard': {
    readonly version: 1
    readonly vendor: string
    readonly validate: (value: unknown) => StandardResult<Output> | Promise<StandardResult<Output>>
    readonly types?: { readonly input: unknown; readonly output: Output } | undefined
  }
}

/** Result of a {@link StandardSchema}: the validated value, or the issues. */
export type StandardResult<Output = unknown> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly { readonly message: string }[] }

/**
 * A tool that a policy may call.
 *
 * @example
 * ```ts
 * import { type Tool, ToolRegistry } from 'fulmar/tools'
 * import assert from 'node:assert/strict'
 *
 * const add: Tool<{ a: number; b: number }> = {
 *   name: 'add',
 *   description: 'Adds two numbers.',
 *   parameters: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'] },
 *   run: ({ a, b }) => ({ sum: a + b }),
 * }
 * assert.deepEqual(new ToolRegistry([add]).names, ['add'])
 * ```
 */
export interface Tool<Args = Readonly<Record<string, unknown>>> {
  /** Name for calls: at most 64 letters, digits, `_`, `.` and `-`. */
  readonly name: string
  /** Description for the policy. */
  readonly description?: string
  /** JSON Schema of the arguments, shown to the policy and checked before each call. @default any object */
  readonly parameters?: Readonly<Record<string, unknown>>
  /** Validates arguments instead of `parameters`; the tool gets its output. */
  readonly schema?: StandardSchema
  /** If true, the tool keeps state for each conversation, so its calls need `context.conversation`. @default false */
  readonly perConversation?: boolean
  /** Runs a call and returns JSON. An error becomes the answer of the call. */
  run(args: Args, context: ToolContext): unknown
}

/** Valid arguments, or the reason why they are invalid. */
export type CheckedArguments =
  | { readonly ok: true; readonly value: ToolArguments }
  | { readonly ok: false; readonly problem: string }

/**
 * Tools by name, in the order of their registration.
 *
 * @example
 * ```ts
 * import { ToolRegistry } from 'fulmar/tools'
 * import assert from 'node:assert/strict'
 *
 * const registry = new ToolRegistry()
 * registry.register({ name: 'now', description: 'The time.', run: () => '12:00' })
 * assert.equal(registry.has('now'), true)
 * const parameters = { type: 'object', properties: {} }
 * assert.deepEqual(registry.specs, [{ type: 'function', function: { name: 'now', description: 'The time.', parameters } }])
 * assert.throws(() => registry.get('noon'), { code: 'UNKNOWN_NAME', message: "Unknown tool: noon; did you mean 'now'?" })
 * ```
 */
export class ToolRegistry {
  readonly #tools = new Map<
    string,
    { readonly tool: Tool; readonly check: (args: unknown) => Promise<CheckedArguments> }
  >()

  /** @throws {FulmarError} As {@link ToolRegistry.register}. */
  constructor(tools: Iterable<Tool> = []) {
    for (const tool of tools) this.register(tool)
  }

  /** @throws {FulmarError} `MALFORMED` for a value that is not a tool; `INCOMPATIBLE` if its name is taken; `UNKNOWN_NAME` for an unknown key. */
  register(tool: Tool): void {
    checkTool(tool)
    if (this.#tools.has(tool.name)) {
      throw new FulmarError('INCOMPATIBLE', `tools must differ in name: got ${tool.name} twice`)
    }
    this.#tools.set(tool.name, { tool: Object.freeze({ ...tool }), check: checkOf(tool) })
  }

  /** Removes a tool. Returns false if no tool has this name. */
  unregister(name: string): boolean {
    return this.#tools.delete(name)
  }

  /** @throws {FulmarError} `UNKNOWN_NAME` if there is no tool of this name. */
  get(name: string): Tool {
    return this.#entry(name).tool
  }

  has(name: string): boolean {
    return this.#tools.has(name)
  }

  /** @throws {FulmarError} `UNKNOWN_NAME` if there is no such tool. Rejects with what a schema's own code throws. */
  async check(name: string, args: unknown): Promise<CheckedArguments> {
    return await this.#entry(name).check(args)
  }

  /** True if a tool keeps state for each conversation. */
  get perConversation(): boolean {
    return Array.from(this.#tools.values()).some(({ tool }) => tool.perConversation === true)
  }

  get names(): readonly string[] {
    return [...this.#tools.keys()]
  }

  /** Specifications of the tools for renderers and chat APIs. */
  get specs(): readonly ToolSpec[] {
    return Array.from(this.#tools.values(), ({ tool: { name, description, parameters = ANY_OBJECT } }) => ({
      type: 'function',
      function: { name, ...(description !== undefined && { description }), parameters },
    }))
  }

  /** Returns the message for an unknown tool name. */
  refusalOf(name: string): string {
    const nearest = nearestName(name, this.names)
    const hint = nearest === undefined ? '' : `; did you mean '${nearest}'?`
    return `Unknown tool: ${name.slice(0, NAME_CHARS_MAX)}${hint}`
  }

  #entry(name: string) {
    const entry = this.#tools.get(name)
    if (entry) return entry
    throw new FulmarError('UNKNOWN_NAME', this.refusalOf(name))
  }
}

const ANY_OBJECT = { type: 'object', properties: {} }
const NAME_CHARS_MAX = 64

function checkTool(tool: Tool): void {
  checkKnownKeys('tool', tool, ['name', 'description', 'parameters', 'schema', 'perConversation', 'run'])
  const { name, description = '', parameters = ANY_OBJECT, schema, perConversation = false, run } = tool
  if (typeof name !== 'string' || !/^[\w.-]{1,64}$/.test(name)) {
    throw new FulmarError(
      'MALFORMED',
      `tool.name must be up to ${NAME_CHARS_MAX} letters, digits, _, . and -: got ${describeValue(name)}`,
    )
  }
  const wrong = Object.entries({
    'description must be a text': [typeof description === 'string', description],
    'parameters must be a schema': [
      typeof parameters === 'object' && parameters !== null && !Array.isArray(parameters),
      parameters,
    ],
    'schema must be of Standard Schema': [
      schema === undefined || typeof schema['~standard']?.validate === 'function',
      schema,
    ],
    'perConversation must be true or false': [typeof perConversation === 'boolean', perConversation],
    'run must be a function': [typeof run === 'function', run],
  }).find(([, [isRight]]) => !isRight)
  if (wrong) {
    const [rule, [, value]] = wrong
    throw new FulmarError('MALFORMED', `${rule} in the tool ${name}: got ${describeValue(value)}`)
  }
}

/** Returns the check of a tool's arguments; its schema is read once. */
function checkOf({ parameters, schema }: Tool): (args: unknown) => Promise<CheckedArguments> {
  if (schema !== undefined) {
    return async (args) => {
      const result = await schema['~standard'].validate(args)
      if (result.issues === undefined) return { ok: true, value: result.value as ToolArguments }
      return { ok: false, problem: result.issues.map(({ message }) => message).join('; ') }
    }
  }
  const validator = new Validator((parameters ?? ANY_OBJECT) as Schema, '2020-12')
  return async (args) => {
    const { valid, errors } = validator.validate(args)
    if (valid) return { ok: true, value: args as ToolArguments }
    const { instanceLocation = '#', error = 'no' } = errors.at(-1) ?? {}
    return { ok: false, problem: `${instanceLocation}: ${error}` }
  }
}
