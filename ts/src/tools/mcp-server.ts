/** A connection to one MCP server, which is made again when it ends. */

import type { Client } from '@modelcontextprotocol/client'
import { withDeadline } from '../async/index.js'
import { FulmarError, messageOf } from '../core/index.js'
import type { Clock } from '../telemetry/index.js'
import type { McpResult } from './mcp-content.js'
import type { McpStdio } from './mcp-stdio.js'

/** An MCP server that is a process. */
export interface McpCommand {
  readonly command: string
  readonly args?: readonly string[]
  /** Environment variables, in addition to `PATH`, `HOME` and a few others. @default none */
  readonly env?: Readonly<Record<string, string>>
  /** Working directory; in a sandbox it is the home. @default that of this process */
  readonly cwd?: string
  /**
   * If set, the server runs in a sandbox without network: it sees `/usr`, an empty home, and the paths of `readOnly`.
   * @default false
   */
  readonly sandbox?: boolean | McpSandbox
  /** Names of the tools that the policy may call. @default all */
  readonly tools?: readonly string[]
}

/** Sandbox of an MCP server. */
export interface McpSandbox {
  /** Absolute paths that the server may read. @default none */
  readonly readOnly?: readonly string[]
  /** Path or name of the program `bwrap`. @default 'bwrap' */
  readonly bwrap?: string
}

/** An MCP server at an address (streamable HTTP). */
export interface McpAddress {
  readonly url: string | URL
  /** Headers of each request. @default none */
  readonly headers?: Readonly<Record<string, string>>
  /** Names of the tools that the policy may call. @default all */
  readonly tools?: readonly string[]
}

/** An MCP server. */
export type McpServer = McpCommand | McpAddress

/** A tool as a server describes it. */
export interface McpToolDescription {
  readonly name: string
  readonly description?: string | undefined
  readonly inputSchema: Readonly<Record<string, unknown>>
}

/** Progress of a call. */
export interface McpProgress {
  readonly server: string
  readonly tool: string
  readonly progress: number
  readonly total?: number | undefined
  readonly message?: string | undefined
}

/** Options of a connection. */
export interface McpConnectionOptions {
  readonly name: string
  readonly server: McpServer
  readonly timeoutMs: number
  readonly startTimeoutMs: number
  readonly clock: Clock
  readonly fetch: typeof globalThis.fetch
  /** Called with the tools of the server, after each start and each change. */
  readonly onTools: (tools: readonly McpToolDescription[]) => void
  readonly onProgress: ((progress: McpProgress) => void) | undefined
}

/** First and longest wait before a server that ended is started again; it doubles each time. */
const BACKOFF_MS = 1_000
const BACKOFF_MS_MAX = 60_000

/** Time for a server to answer whether it is alive, after a call that was late. */
const PING_MS = 2_000

/** Maximum number of tools of a server. */
const MCP_TOOLS_MAX = 512

/** Maximum number of bytes of a response over HTTP. */
const RESPONSE_BYTES_MAX = 67_108_864

/** The timers of the client are not used: deadlines are the clock's. */
const NO_TIMEOUT = { timeout: 2_147_483_647 }

type Package = typeof import('@modelcontextprotocol/client')

/** In a constant, so that bundlers do not look for a package that is optional. */
const PACKAGE: string = '@modelcontextprotocol/client'

/** A server with its client: started at the first call, and again after an end. */
export class McpConnection {
  readonly #options: McpConnectionOptions
  #client: Client | undefined
  #stdio: McpStdio | undefined
  #starting: Promise<Client> | undefined
  #listing: Promise<void> | undefined
  #isChanged = false
  #numFailures = 0
  #retryAtMs = 0
  #reason = ''
  #isClosed = false

  constructor(options: McpConnectionOptions) {
    this.#options = options
  }

  /**
   * Starts the server, unless it runs, and lists its tools.
   * @throws {FulmarError} `UNAVAILABLE` if it does not start, or ended a moment ago; `TIMEOUT`; `CLOSED`.
   */
  async open(): Promise<void> {
    await this.#connected()
  }

  /**
   * Calls a tool.
   * @throws {FulmarError} `USER_CODE` with the server's own error; `TIMEOUT` without an answer; `UNAVAILABLE` if the server
   * ended or cannot be reached; `ABORTED`.
   */
  async call(tool: string, args: Readonly<Record<string, unknown>>, signal: AbortSignal): Promise<McpResult> {
    const { name, clock, timeoutMs, onProgress } = this.#options
    const client = await this.#connected()
    const onprogress = onProgress && {
      onprogress: ({ progress, total, message }: Omit<McpProgress, 'server' | 'tool'>) =>
        onProgress({ server: name, tool, progress, total, message }),
    }
    const answer = await withDeadline({
      clock,
      timeoutMs,
      signal,
      run: (context) =>
        client.callTool(
          { name: tool, arguments: args as never },
          { ...NO_TIMEOUT, ...onprogress, signal: context.signal },
        ),
    })
    if (answer.kind === 'value') {
      this.#numFailures = 0
      return answer.value
    }
    if (answer.kind === 'timeout') {
      void this.#checkAlive(client)
      throw new FulmarError('TIMEOUT', `server ${name} must answer within ${timeoutMs} ms: it did not`)
    }
    throw await this.#failed(client, answer.error)
  }

  /** Ends the connection, and a server that is a process. */
  async close(): Promise<void> {
    this.#isClosed = true
    const client = this.#client
    this.#client = undefined
    await this.#stdio?.close()
    await client?.close().catch(() => {})
    await this.#starting?.catch(() => {})
  }

  async #connected(): Promise<Client> {
    const { name, clock } = this.#options
    if (this.#isClosed) throw new FulmarError('CLOSED', `server ${name} must be open: it was closed`)
    if (this.#client) return this.#client
    const waitMs = Math.ceil(this.#retryAtMs - clock.nowMs())
    if (waitMs > 0 && !this.#starting) {
      const detail = `server ${name} must run: ${this.#reason}; it is started again in ${waitMs} ms at the earliest`
      throw new FulmarError('UNAVAILABLE', detail)
    }
    this.#starting ??= this.#start().finally(() => {
      this.#starting = undefined
    })
    return await this.#starting
  }

  async #start(): Promise<Client> {
    const { name, clock, startTimeoutMs } = this.#options
    const sdk = await importClient()
    const client = new sdk.Client({ name: 'fulmar', version: '1' })
    const transport = await this.#transport(sdk)
    client.onclose = () => this.#lost(client, this.#stdio?.reason ?? 'the connection ended')
    client.onerror = () => {} // a wrong message; calls have errors of their own
    client.setNotificationHandler('notifications/tools/list_changed', () => this.#refresh(client))
    const started = await withDeadline({
      clock,
      timeoutMs: startTimeoutMs,
      signal: undefined,
      run: async ({ signal }) => {
        await client.connect(transport, { ...NO_TIMEOUT, signal })
        return await this.#list(client, signal)
      },
    })
    if (started.kind === 'value' && !this.#isClosed) {
      this.#client = client
      return client
    }
    const reason =
      started.kind === 'thrown' ? messageOf(started.error) : `no answer within ${startTimeoutMs} ms`
    const because = this.#stdio === undefined ? reason : `${reason}; ${this.#stdio.reason}`
    await this.#stdio?.close()
    await client.close().catch(() => {})
    this.#fail(because)
    throw new FulmarError('UNAVAILABLE', `server ${name} must start: got ${because}`)
  }

  async #transport(sdk: Package) {
    const { server } = this.#options
    if ('command' in server) {
      const { McpStdio } = await import('./mcp-stdio.js')
      this.#stdio = new McpStdio(server, sdk.deserializeMessage)
      return this.#stdio as unknown as InstanceType<Package['StreamableHTTPClientTransport']>
    }
    const { url, headers = {} } = server
    return new sdk.StreamableHTTPClientTransport(new URL(url), {
      requestInit: { headers },
      fetch: boundedFetch(this.#options.fetch),
    })
  }

  async #list(client: Client, signal?: AbortSignal): Promise<void> {
    const { tools } = await client.listTools(undefined, {
      ...NO_TIMEOUT,
      ...(signal && { signal }),
      cacheMode: 'refresh',
    })
    this.#options.onTools(tools.slice(0, MCP_TOOLS_MAX))
  }

  /** Lists tools once more, one time for any number of changes meanwhile. */
  #refresh(client: Client): void {
    this.#isChanged = true
    this.#listing ??= this.#listChanged(client).finally(() => {
      this.#listing = undefined
    })
  }

  async #listChanged(client: Client): Promise<void> {
    const { clock, timeoutMs } = this.#options
    while (this.#isChanged && !this.#isClosed) {
      this.#isChanged = false
      const listed = await withDeadline({
        clock,
        timeoutMs,
        signal: undefined,
        run: ({ signal }) => this.#list(client, signal),
      })
      if (listed.kind === 'timeout') this.#lost(client, `no list of tools within ${timeoutMs} ms`)
      if (listed.kind !== 'value') return
    }
  }

  /** Drops a server that answers nothing any more. */
  async #checkAlive(client: Client): Promise<void> {
    const { clock } = this.#options
    const pong = await withDeadline({
      clock,
      timeoutMs: PING_MS,
      signal: undefined,
      run: ({ signal }) => client.ping({ ...NO_TIMEOUT, signal }),
    })
    if (pong.kind !== 'value') this.#lost(client, 'it answered neither a call nor a ping')
  }

  /** The error of a call; one that is not the server's answer ends the connection. */
  async #failed(client: Client, error: unknown): Promise<FulmarError> {
    const { name } = this.#options
    const { ProtocolError } = await importClient()
    const message = messageOf(error)
    if (error instanceof ProtocolError) return new FulmarError('USER_CODE', message, { cause: error })
    this.#lost(client, message)
    return new FulmarError('UNAVAILABLE', `server ${name} must answer: ${this.#reason}`, { cause: error })
  }

  #lost(client: Client, reason: string): void {
    if (this.#client !== client) return
    this.#client = undefined
    this.#fail(reason)
    void this.#stdio?.close()
    void client.close().catch(() => {})
  }

  #fail(reason: string): void {
    this.#reason = reason
    this.#retryAtMs =
      this.#options.clock.nowMs() +
      Math.min(BACKOFF_MS_MAX, BACKOFF_MS * 2 ** Math.min(this.#numFailures, 16))
    this.#numFailures += 1
  }
}

async function importClient(): Promise<Package> {
  try {
    return (await import(/* @vite-ignore */ PACKAGE)) as Package
  } catch (cause) {
    const detail =
      '@modelcontextprotocol/client must be installed: it could not be imported (npm install @modelcontextprotocol/client)'
    throw new FulmarError('UNAVAILABLE', detail, { cause })
  }
}

/** A `fetch` whose responses end with an error beyond the limit. */
function boundedFetch(fetch: typeof globalThis.fetch): typeof globalThis.fetch {
  return async (input, init) => {
    const response = await fetch(input, init)
    if (response.body === null) return response
    let numBytes = 0
    const counter = new TransformStream<Uint8Array, Uint8Array>({
      transform(bytes, controller) {
        numBytes += bytes.length
        if (numBytes <= RESPONSE_BYTES_MAX) controller.enqueue(bytes)
        else controller.error(new Error(`a response must have ${RESPONSE_BYTES_MAX} bytes at most`))
      },
    })
    const { status, statusText, headers } = response
    return new Response(response.body.pipeThrough(counter), { status, statusText, headers })
  }
}
