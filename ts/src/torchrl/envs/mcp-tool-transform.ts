/** Tools of MCP servers, called in a policy's messages. */

import { checkKnownKeys } from '../../core/index.js'
import {
  type McpTools,
  type McpToolsOptions,
  mcpTools,
  ToolBlockParser,
  type ToolCallParser,
  type ToolResult,
} from '../../tools/index.js'
import { MCP_TOOLS_KEYS } from '../../tools/mcp-tools.js'
import { checkParser } from '../../tools/tool-call.js'
import { toolMessage } from '../../tools/tool-message.js'
import { TOOL_TRANSFORM_KEYS, ToolTransform, type ToolTransformOptions } from './tool-transform.js'

/** Options of {@link MCPToolTransform.open}. */
export interface MCPToolTransformOptions
  extends Omit<McpToolsOptions, 'registry' | 'timeoutMs'>,
    Omit<ToolTransformOptions, 'tools'> {}

const OPTION_KEYS = [...MCP_TOOLS_KEYS, ...TOOL_TRANSFORM_KEYS].filter(
  (name) => name !== 'registry' && name !== 'tools',
)

/** Time in addition to the deadline of a call, in which a server that ended is started again. */
const START_MS = 20_000

/**
 * Runs calls of tools of MCP servers side by side, and answers each with a message, as `SimpleToolTransform` does. Calls are
 * written `<tool>server.tool`, on the next lines the arguments as JSON, and `</tool>`, unless `parser` reads others; a name
 * without a dot is one of the first server. See {@link mcpTools} for the servers. Close it to end them.
 *
 * @example
 * ```ts native
 * import { NonTensorData, TensorDict } from 'fulmar/tensor'
 * import { ChatEnv, chatsAt, MCPToolTransform, replyPolicy, TransformedEnv } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const args = ['node_modules/@modelcontextprotocol/server-everything/dist/index.js']
 * const transform = await MCPToolTransform.open({ servers: { every: { command: process.execPath, args } } })
 * const env = new TransformedEnv(new ChatEnv(), [transform])
 * const dict = await env.reset(TensorDict.from({ query: new NonTensorData('2+3?') }, { batchSize: [1] }))
 * const policy = replyPolicy({ inputMode: 'history', reply: () => '<tool>every.get-sum\n{"a": 2, "b": 3}\n</tool>' })
 * const [chat] = chatsAt(await env.step(await policy(dict)), ['history', 'prompt'])
 * assert.equal(chat.at(-1)?.content, 'Tool every.get-sum executed successfully:\nThe sum of 2 and 3 is 5.')
 * await transform.close()
 * ```
 */
export class MCPToolTransform extends ToolTransform {
  readonly #mcp: McpTools

  private constructor(mcp: McpTools, options: ToolTransformOptions & { readonly parser: ToolCallParser }) {
    const write = (results: readonly ToolResult[], role: string) =>
      results.map((result) => toolMessage(result, role))
    super(options, { write })
    this.#mcp = mcp
  }

  /**
   * Starts the servers.
   * @throws {FulmarError} As {@link mcpTools}, and as the constructor of `SimpleToolTransform`.
   */
  static async open(options: MCPToolTransformOptions): Promise<MCPToolTransform> {
    checkKnownKeys('options', options, OPTION_KEYS)
    const { servers, startTimeoutMs, images, onProgress, fetch, ...rest } = options
    const { clock, timeoutMs = 10_000, parser = new ToolBlockParser(), ...others } = rest
    checkParser(parser)
    const given = Object.entries({ startTimeoutMs, images, onProgress, fetch, clock })
    const known = Object.fromEntries(given.filter(([, value]) => value !== undefined))
    const mcp = await mcpTools({ servers, timeoutMs, ...known })
    const [first = ''] = Object.keys(servers)
    const runner = { ...others, ...(clock && { clock }), timeoutMs: timeoutMs + START_MS }
    try {
      return new MCPToolTransform(mcp, {
        ...runner,
        tools: mcp.registry,
        parser: ofFirstServer(parser, first),
      })
    } catch (error) {
      await mcp.close()
      throw error
    }
  }

  /** Ends all conversations, connections and servers. */
  override async close(): Promise<void> {
    super.close()
    await this.#mcp.close()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}

/** The parser, with the name of the first server before names without a server. */
function ofFirstServer(parser: ToolCallParser, first: string): ToolCallParser {
  return {
    ...(parser.example !== undefined && { example: parser.example }),
    parse(content) {
      const parsed = parser.parse(content)
      const calls = parsed.calls.map((call) =>
        call.tool === '' || call.tool.includes('.') ? call : { ...call, tool: `${first}.${call.tool}` },
      )
      return { ...parsed, calls }
    },
  }
}
