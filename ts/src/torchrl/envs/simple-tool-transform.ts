/** Tools whose calls are answered one message each. */

import { ToolBlockParser, type ToolResult } from '../../tools/index.js'
import { toolMessage } from '../../tools/tool-message.js'
import { ToolTransform, type ToolTransformOptions } from './tool-transform.js'

/** Options of {@link SimpleToolTransform}. */
export type SimpleToolTransformOptions = ToolTransformOptions

/**
 * Runs the calls of a turn side by side and answers each with a message, in the order of the calls: `Tool add executed successfully:` or
 * `Tool add failed:`, and on the next line the result as JSON (a text as it is) or what went wrong. Calls are written as
 * {@link ToolBlockParser} reads them unless `parser` reads others.
 *
 * @example
 * ```ts
 * import { NonTensorData, TensorDict } from 'fulmar/tensor'
 * import { ChatEnv, chatsAt, replyPolicy, SimpleToolTransform, TransformedEnv } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const add = { name: 'add', run: ({ a, b }: { a: number; b: number }) => ({ sum: a + b }) }
 * const env = new TransformedEnv(new ChatEnv(), [new SimpleToolTransform({ tools: [add] })])
 * const dict = await env.reset(TensorDict.from({ query: new NonTensorData('2+3?') }, { batchSize: [1] }))
 * const policy = replyPolicy({ inputMode: 'history', reply: () => '<tool>add\n{"a": 2, "b": 3}\n</tool>' })
 * const [chat] = chatsAt(await env.step(await policy(dict)), ['history', 'prompt'])
 * assert.deepEqual(chat.at(-1), { role: 'tool', content: 'Tool add executed successfully:\n{"sum":5}' })
 * ```
 */
export class SimpleToolTransform extends ToolTransform {
  /**
   * @throws {FulmarError} `OUT_OF_RANGE` for an invalid limit; `INCOMPATIBLE` for the assistant's role;
   * `MALFORMED` for an invalid parser; `UNKNOWN_NAME` for an unknown option; errors of a registry for a tool.
   */
  constructor(options: SimpleToolTransformOptions) {
    const write = (results: readonly ToolResult[], role: string) =>
      results.map((result) => toolMessage(result, role))
    super({ parser: new ToolBlockParser(), ...options }, { write })
  }
}
