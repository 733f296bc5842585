/** A browser, called in a policy's messages. */

import { checkKnownKeys } from '../../core/index.js'
import { BROWSER_KEYS } from '../../tools/browser-tools.js'
import {
  type BrowserToolsOptions,
  browserTools,
  ToolBlockParser,
  type ToolResult,
} from '../../tools/index.js'
import { toolMessage } from '../../tools/tool-message.js'
import { TOOL_TRANSFORM_KEYS, ToolTransform, type ToolTransformOptions } from './tool-transform.js'

/** Options of {@link BrowserTransform}. */
export interface BrowserTransformOptions
  extends BrowserToolsOptions,
    Pick<ToolTransformOptions, 'parser' | 'toolRole' | 'signal' | 'maxCalls' | 'maxConcurrent'> {
  /** Deadline of an action in milliseconds. @default 30_000 */
  readonly timeoutMs?: number
}

const OPTION_KEYS = [
  ...BROWSER_KEYS,
  ...TOOL_TRANSFORM_KEYS.filter((name) =>
    ['parser', 'toolRole', 'signal', 'maxCalls', 'maxConcurrent'].includes(name),
  ),
]

/** Time for the start of a browser, in addition to the deadline of an action. */
const START_MS = 30_000

/** Characters of a screenshot as JSON. */
const IMAGE_CHARS_MAX = 16_777_216

/**
 * Runs the actions of a turn in a browser, in their order, and answers each with a message. Calls are those of the tool
 * `browser` (see {@link browserTools}), written `<tool>browser`, on the next lines the arguments as JSON, and `</tool>`,
 * unless `parser` reads others. Each conversation has a page of its own. Close it to end its browsers.
 *
 * @example
 * ```ts
 * import { NonTensorData, TensorDict } from 'fulmar/tensor'
 * import { BrowserTransform, ChatEnv, chatsAt, replyPolicy, TransformedEnv } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const transform = new BrowserTransform({ allowedHosts: ['example.com'] })
 * const env = new TransformedEnv(new ChatEnv(), [transform])
 * const dict = await env.reset(TensorDict.from({ query: new NonTensorData('Look.') }, { batchSize: [1] }))
 * const said = '<tool>browser\n{"action": "navigate", "url": "file:///etc/passwd"}\n</tool>'
 * const policy = replyPolicy({ inputMode: 'history', reply: () => said })
 * const [chat] = chatsAt(await env.step(await policy(dict)), ['history', 'prompt'])
 * assert.match(String(chat.at(-1)?.content), /^Tool browser failed:\n.*url must be of http or https, at example\.com/)
 * await transform.close()
 * ```
 */
export class BrowserTransform extends ToolTransform {
  readonly #browser: AsyncDisposable

  /** @throws {FulmarError} As {@link browserTools}, and as the constructor of `SimpleToolTransform`. */
  constructor(options: BrowserTransformOptions = {}) {
    checkKnownKeys('options', options, OPTION_KEYS)
    const { parser, toolRole, signal, maxCalls, maxConcurrent, timeoutMs = 30_000, ...rest } = options
    const given = Object.entries({ toolRole, signal, maxCalls, maxConcurrent })
    const [browser] = browserTools({ ...rest, timeoutMs })
    const write = (results: readonly ToolResult[], role: string) =>
      results.map((result) => toolMessage(result, role))
    super(
      {
        ...Object.fromEntries(given.filter(([, value]) => value !== undefined)),
        tools: [browser],
        parser: parser ?? new ToolBlockParser(),
        timeoutMs: timeoutMs + START_MS,
        maxResultChars: IMAGE_CHARS_MAX,
      },
      { write, inOrder: true },
    )
    this.#browser = browser
  }

  /** Ends all conversations and browsers. */
  override async close(): Promise<void> {
    super.close()
    await this.#browser[Symbol.asyncDispose]()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}
