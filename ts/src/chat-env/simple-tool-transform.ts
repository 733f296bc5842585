/** Tools whose calls are answered one message each. */

import type { Message } from '../chat/index.js'
import type { TensorDict } from '../tensor/index.js'
import type { EnvSpecs } from './env.js'
import { ToolBlockParser } from './tool-block-parser.js'
import { type ToolResult, wellFormedText } from './tool-runner.js'
import { type ToolTransformOptions, toolTransform } from './tool-transform.js'
import type { EnvTransform, EnvView } from './transformed-env.js'

/** Options of {@link SimpleToolTransform}. */
export type SimpleToolTransformOptions = ToolTransformOptions

/**
 * Runs the calls of a turn side by side and answers each with a message, in the order of the calls: `Tool add executed successfully:` or
 * `Tool add failed:`, and on the next line the result as JSON (a text as it is) or what went wrong. Calls are written as
 * {@link ToolBlockParser} reads them unless `parser` reads others.
 *
 * @example
 * ```ts
 * import { ChatEnv, chatsAt, NonTensorData, replyPolicy, SimpleToolTransform, TensorDict, TransformedEnv } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const add = { name: 'add', run: ({ a, b }) => ({ sum: a + b }) }
 * const env = new TransformedEnv(new ChatEnv(), [new SimpleToolTransform({ tools: [add] })])
 * const dict = await env.reset(TensorDict.from({ query: new NonTensorData('2+3?') }, { batchSize: [1] }))
 * const policy = replyPolicy({ inputMode: 'history', reply: () => '<tool>add\n{"a": 2, "b": 3}\n</tool>' })
 * const [chat] = chatsAt(await env.step(await policy(dict)), ['history', 'prompt'])
 * assert.deepEqual(chat.at(-1), { role: 'tool', content: 'Tool add executed successfully:\n{"sum":5}' })
 * ```
 */
export class SimpleToolTransform implements EnvTransform {
  readonly #transform: EnvTransform

  /**
   * @throws {FulmarError} `OUT_OF_RANGE` for a limit that is none; `INCOMPATIBLE` for the assistant's role; `MALFORMED` for a parser that
   * is none; `UNKNOWN_NAME` for an unknown option; what a registry says of a tool.
   */
  constructor(options: SimpleToolTransformOptions) {
    const write = (results: readonly ToolResult[], role: string) =>
      results.map((result) => toolMessage(result, role))
    this.#transform = toolTransform({ parser: new ToolBlockParser(), ...options }, { write })
  }

  /** Answers calls. @throws {FulmarError} `ABORTED` if the signal fires. */
  async afterStep(next: TensorDict, root: TensorDict, env: EnvView): Promise<TensorDict> {
    return (await this.#transform.afterStep?.(next, root, env)) ?? next
  }

  transformSpecs(env: EnvView): EnvSpecs {
    return this.#transform.transformSpecs?.(env) ?? env
  }
}

/** The answer to one call; it names the call where the call has an id. */
export function toolMessage(result: ToolResult, role: string): Message {
  const { tool, id } = result.call
  return {
    role,
    content: wellFormedText(contentOf(result)),
    ...(id !== undefined && {
      name: wellFormedText(tool.slice(0, TOOL_NAME_SHOWN_MAX)),
      tool_call_id: wellFormedText(id),
    }),
  }
}

/** How much of a name that a policy wrote is said back to it. */
export const TOOL_NAME_SHOWN_MAX = 64

function contentOf(result: ToolResult): string {
  const name = result.call.tool.slice(0, TOOL_NAME_SHOWN_MAX)
  if (!result.ok) return `Tool ${name} failed:\n${reasonOf(result)}`
  const { value } = result
  return `Tool ${name} executed successfully:\n${typeof value === 'string' ? value : JSON.stringify(value)}`
}

function reasonOf({ call, error }: ToolResult & { readonly ok: false }): string {
  if (call.problem !== undefined) return `Failed to parse tool arguments: ${error.message}`
  return error.code === 'UNKNOWN_NAME' ? error.message : `Tool execution failed: ${error.message}`
}
