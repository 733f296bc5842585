/** Tools that run one after another and are answered with one message. */

import type { Message } from '../../chat/index.js'
import { checkKnownKeys } from '../../core/index.js'
import type { Json } from '../../tensor/index.js'
import { type ToolResult, XMLBlockParser } from '../../tools/index.js'
import { shown } from '../../tools/tool-message.js'
import { wellFormedText } from '../../tools/tool-runner.js'
import { TOOL_TRANSFORM_KEYS, ToolTransform, type ToolTransformOptions } from './tool-transform.js'

/** Options of {@link ExecuteToolsInOrder}. */
export interface ExecuteToolsInOrderOptions extends ToolTransformOptions {
  /** If true, calls stop after the first failure. @default false */
  readonly stopOnError?: boolean
}

/**
 * Runs the calls of a turn in their order, each when the one before has ended, and answers with one message: a block `<tool_results>` that
 * lists what came of each. Calls are written as {@link XMLBlockParser} reads them unless `parser` reads others.
 *
 * @example
 * ```ts
 * import { NonTensorData, TensorDict } from 'fulmar/tensor'
 * import { ChatEnv, chatsAt, ExecuteToolsInOrder, replyPolicy, TransformedEnv } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const notes: string[] = []
 * const tools = [{ name: 'note', run: ({ text }: { text: string }) => notes.push(text) }, { name: 'read', run: () => notes }]
 * const env = new TransformedEnv(new ChatEnv(), [new ExecuteToolsInOrder({ tools })])
 * const dict = await env.reset(TensorDict.from({ query: new NonTensorData('Note a.') }, { batchSize: [1] }))
 * const said = '<tool name="note">{"text": "a"}</tool><tool name="read" tag="R"></tool>'
 * const next = await env.step(await replyPolicy({ inputMode: 'history', reply: () => said })(dict))
 * const content = String(chatsAt(next, ['history', 'prompt'])[0].at(-1)?.content)
 * assert.match(content, /Tool read \(call 2\) \[tag: R\] succeeded:\n  Result: \[\n  "a"\n\]\n<\/tool_results>$/)
 * ```
 */
export class ExecuteToolsInOrder extends ToolTransform {
  /** @throws {FulmarError} As `SimpleToolTransform`. */
  constructor(options: ExecuteToolsInOrderOptions) {
    checkKnownKeys('options', options, ['stopOnError', ...TOOL_TRANSFORM_KEYS])
    const { stopOnError = false, ...rest } = options
    const write = (results: readonly ToolResult[], role: string): Message[] => [
      {
        role,
        content: wellFormedText(['<tool_results>', ...results.map(entryOf), '</tool_results>'].join('\n')),
      },
    ]
    super({ parser: new XMLBlockParser(), ...rest }, { write, inOrder: true, stopOnError })
  }
}

function entryOf(result: ToolResult, at: number): string {
  const { tool, tag } = result.call
  const head = `Tool ${shown(tool)} (call ${at + 1})${tag === null ? '' : ` [tag: ${shown(tag)}]`}`
  if (!result.ok) return `${head} failed:\n  Error: ${result.error.message}`
  return `${head} succeeded:\n  Result: ${indented(result.value)}`
}

/** JSON on lines of its own, unless that is mostly space: what is deep stays on one. */
function indented(value: Json): string {
  const [lines, line] = [JSON.stringify(value, null, 2), JSON.stringify(value)]
  return lines.length <= SPREAD_MAX * line.length ? lines : line
}

/** Maximum growth factor of JSON by indentation. */
const SPREAD_MAX = 8
