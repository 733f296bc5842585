/** Tools of servers that speak the Model Context Protocol (MCP). */

import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import { type Clock, systemClock, TIMER_DELAY_MS_MAX } from '../telemetry/index.js'
import { type McpImages, mcpContent } from './mcp-content.js'
import { McpConnection, type McpProgress, type McpServer, type McpToolDescription } from './mcp-server.js'
import { type Tool, ToolRegistry } from './tool-registry.js'

/** Options of {@link mcpTools}. */
export interface McpToolsOptions {
  /** Servers by name. Names have letters, digits, `_` and `-`. */
  readonly servers: Readonly<Record<string, McpServer>>
  /** Registry for the tools, such as one with tools of your own. @default a new one */
  readonly registry?: ToolRegistry
  /** Deadline of a call in milliseconds, below that of the `ToolRunner`. @default 8_000 */
  readonly timeoutMs?: number
  /** Deadline of a server's start in milliseconds. @default 20_000 */
  readonly startTimeoutMs?: number
  /** If `part`, images become parts of messages, for models that see; if `text`, a line of text. @default 'text' */
  readonly images?: McpImages
  /** Called with the progress of calls. @default not called */
  readonly onProgress?: (progress: McpProgress) => void
  /** HTTP client. @default globalThis.fetch */
  readonly fetch?: typeof globalThis.fetch
  /** Clock of deadlines and waits. @default systemClock */
  readonly clock?: Clock
}

/** The names of {@link McpToolsOptions}. */
export const MCP_TOOLS_KEYS = [
  ...['servers', 'registry', 'timeoutMs', 'startTimeoutMs'],
  ...['images', 'onProgress', 'fetch', 'clock'],
] as const

const COMMAND_KEYS = ['command', 'args', 'env', 'cwd', 'sandbox', 'tools']
const ADDRESS_KEYS = ['url', 'headers', 'tools']

/** Maximum length of a description for the policy. */
const DESCRIPTION_CHARS_MAX = 4_096

/**
 * Starts MCP servers, or connects to them, and returns their tools as `server.tool`, for `withTools` and `ToolRunner`.
 * Needs the package `@modelcontextprotocol/client`. A server's process is ended by `close`, or when this process ends.
 *
 * A server that hangs, ends, floods, or writes no messages is ended; its calls are answered with the reason, and a later
 * call starts it again: after 1 s, then 2 s, up to 60 s. The registry follows the server's list of tools.
 *
 * @throws {FulmarError} `UNAVAILABLE` if the package or a server is not there; `UNKNOWN_NAME` for an option, or a tool of
 * a server's `tools` that it lacks; `MALFORMED` or `OUT_OF_RANGE` for an option.
 *
 * @example
 * ```ts native
 * import { ToolRunner } from 'fulmar'
 * import { mcpTools } from 'fulmar/tools'
 * import assert from 'node:assert/strict'
 *
 * const args = ['node_modules/@modelcontextprotocol/server-everything/dist/index.js']
 * const mcp = await mcpTools({ servers: { every: { command: process.execPath, args, tools: ['get-sum'] } } })
 * assert.deepEqual(mcp.registry.names, ['every.get-sum'])
 * const runner = new ToolRunner({ tools: mcp.registry })
 * const [result] = await runner.run([{ tool: 'every.get-sum', args: { a: 2, b: 3 }, tag: null }], { messages: [] })
 * assert.equal(result?.ok && result.value, 'The sum of 2 and 3 is 5.')
 * await mcp.close()
 * ```
 */
export async function mcpTools(options: McpToolsOptions): Promise<McpTools> {
  return await McpTools.open(options)
}

/**
 * Tools of MCP servers, from {@link mcpTools}.
 *
 * @example
 * ```ts native
 * import { McpTools } from 'fulmar/tools'
 * import assert from 'node:assert/strict'
 *
 * await assert.rejects(McpTools.open({ servers: { lost: { command: '/no/such/program' } } }), { code: 'UNAVAILABLE' })
 * const mcp = await McpTools.open({ servers: {} })
 * assert.deepEqual([mcp.registry.names, mcp.refused], [[], []])
 * await mcp.close()
 * ```
 */
export class McpTools {
  /** The tools, which follow the lists of the servers. */
  readonly registry: ToolRegistry
  readonly #connections = new Map<string, McpConnection>()
  readonly #refused = new Map<string, readonly string[]>()

  private constructor(registry: ToolRegistry) {
    this.registry = registry
  }

  /** As {@link mcpTools}. @throws {FulmarError} As there. */
  static async open(options: McpToolsOptions): Promise<McpTools> {
    checkKnownKeys('options', options, MCP_TOOLS_KEYS, ['servers'])
    const { servers, registry = new ToolRegistry(), images = 'text', onProgress } = options
    const { timeoutMs = 8_000, startTimeoutMs = 20_000, clock = systemClock } = options
    const { fetch = globalThis.fetch } = options
    checkOptions({ timeoutMs, startTimeoutMs }, images, registry)
    for (const [name, server] of Object.entries(servers)) checkServer(name, server)
    const tools = new McpTools(registry)
    for (const [name, server] of Object.entries(servers)) {
      const connection: McpConnection = new McpConnection({
        ...{ name, server, timeoutMs, startTimeoutMs, clock, fetch, onProgress },
        onTools: (listed) => tools.#follow(name, server, listed, connection, images),
      })
      tools.#connections.set(name, connection)
    }
    try {
      await Promise.all(Array.from(tools.#connections.values(), (connection) => connection.open()))
      for (const [name, { tools: allowed = [] }] of Object.entries(servers))
        tools.#checkAllowed(name, allowed)
      return tools
    } catch (error) {
      await tools.close()
      throw error
    }
  }

  /** Tools that were left out, with the reason: names or schemas that cannot be used. */
  get refused(): readonly string[] {
    return [...this.#refused.values()].flat()
  }

  /** Ends all connections, and the servers that are processes. */
  async close(): Promise<void> {
    await Promise.all(Array.from(this.#connections.values(), (connection) => connection.close()))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  /** Makes the tools of a server those that it lists. */
  #follow(
    name: string,
    { tools: allowed }: McpServer,
    listed: readonly McpToolDescription[],
    connection: McpConnection,
    images: McpImages,
  ): void {
    for (const known of this.registry.names) if (known.startsWith(`${name}.`)) this.registry.unregister(known)
    const refused: string[] = []
    for (const description of listed) {
      if (allowed && !allowed.includes(description.name)) continue
      try {
        this.registry.register(toolOf(name, description, connection, images))
      } catch (error) {
        refused.push(`${name}.${description.name.slice(0, 64)}: ${String(error)}`)
      }
    }
    this.#refused.set(name, refused)
  }

  #checkAllowed(name: string, allowed: readonly string[]): void {
    for (const tool of allowed) {
      if (this.registry.has(`${name}.${tool}`)) continue
      const listed = this.registry.names.filter((known) => known.startsWith(`${name}.`))
      const detail = `servers.${name}.tools must be tools of the server: got ${describeValue(tool)}, usable are ${listed.join(', ')}`
      throw new FulmarError('UNKNOWN_NAME', detail)
    }
  }
}

function toolOf(
  server: string,
  { name, description, inputSchema }: McpToolDescription,
  connection: McpConnection,
  images: McpImages,
): Tool {
  return {
    name: `${server}.${name}`,
    ...(description !== undefined && { description: description.slice(0, DESCRIPTION_CHARS_MAX) }),
    parameters: inputSchema,
    async run(args, { signal }) {
      const result = await connection.call(name, args, signal)
      const content = mcpContent(result, images)
      if (result.isError !== true) return content
      const text = typeof content === 'string' ? content : JSON.stringify(content.parts)
      throw new FulmarError('USER_CODE', text === '' ? 'the tool failed' : text)
    },
  }
}

function checkOptions(
  times: Readonly<Record<string, number>>,
  images: McpImages,
  registry: ToolRegistry,
): void {
  for (const [name, value] of Object.entries(times)) {
    if (Number.isSafeInteger(value) && value >= 1 && value <= TIMER_DELAY_MS_MAX) continue
    const detail = `options.${name} must be an integer from 1 to ${TIMER_DELAY_MS_MAX}: got ${describeValue(value)}`
    throw new FulmarError('OUT_OF_RANGE', detail)
  }
  if (images !== 'text' && images !== 'part')
    throw new FulmarError('UNKNOWN_NAME', `options.images must be text or part: got ${describeValue(images)}`)
  if (!(registry instanceof ToolRegistry)) {
    const detail = `options.registry must be a ToolRegistry: got ${describeValue(registry)}`
    throw new FulmarError('MALFORMED', detail)
  }
}

function checkServer(name: string, server: McpServer): void {
  const place = `servers.${name.slice(0, 64)}`
  if (!/^[\w-]{1,32}$/.test(name)) {
    const detail = `servers must have names of up to 32 letters, digits, _ and -: got ${describeValue(name)}`
    throw new FulmarError('MALFORMED', detail)
  }
  const isAddress = typeof server === 'object' && server !== null && 'url' in server
  checkKnownKeys(place, server, isAddress ? ADDRESS_KEYS : COMMAND_KEYS, isAddress ? ['url'] : ['command'])
  const { tools } = server
  if (tools !== undefined && !(Array.isArray(tools) && tools.every((tool) => typeof tool === 'string')))
    throw new FulmarError('MALFORMED', `${place}.tools must be a list of names: got ${describeValue(tools)}`)
  if ('url' in server) {
    if (URL.canParse(String(server.url)) && /^https?:$/.test(new URL(server.url).protocol)) return
    throw new FulmarError(
      'MALFORMED',
      `${place}.url must be an address of http: got ${describeValue(server.url)}`,
    )
  }
  const { command, args = [], sandbox = false } = server
  const words = [command, ...args]
  if (!words.every((word) => typeof word === 'string' && !word.includes('\0')) || command === '')
    throw new FulmarError(
      'MALFORMED',
      `${place}.command must be a program with args as texts: got ${describeValue(words)}`,
    )
  if (typeof sandbox === 'boolean') return
  checkKnownKeys(`${place}.sandbox`, sandbox, ['readOnly', 'bwrap'])
  const wrong = (sandbox.readOnly ?? []).find((path) => typeof path !== 'string' || !path.startsWith('/'))
  if (wrong === undefined) return
  throw new FulmarError(
    'MALFORMED',
    `${place}.sandbox.readOnly must be absolute paths: got ${describeValue(wrong)}`,
  )
}
