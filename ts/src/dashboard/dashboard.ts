/** A page about runs, served on this machine alone: charts of their logs, and their rollouts. */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { checkKnownKeys, FulmarError, messageOf } from '../core/index.js'
import { type Answer, failure, type Route } from './answer.js'
import { pageFile } from './page-files.js'
import { checkedUrl, RequestRefusal, SAFE_HEADERS } from './request-guard.js'
import { ROLLOUT_ROUTES } from './rollout-routes.js'
import { RUN_ROUTES } from './run-routes.js'
import { RunTail } from './run-tail.js'

/** Runs of one page. */
export const DASHBOARD_RUNS_MAX = 64

/** Connections at a time; others wait for the system's queue. */
const CONNECTIONS_MAX = 128

/** Bytes of a request's headers. */
const HEADER_BYTES_MAX = 16_384

/** Options of {@link Dashboard.open}. */
export interface DashboardOptions {
  /** Run folders, or folders that `fulmar eval --save` wrote. At most 64. */
  readonly runs: readonly string[]
  /**
   * Port on the loopback's address; 0 for any that is free.
   * @default 0
   */
  readonly port?: number
}

/**
 * A page about one run or several: charts that follow running runs, a reader of their rollouts, and `/metrics` for Prometheus. It listens
 * on 127.0.0.1 alone, answers only GET, loads nothing from elsewhere, and shows all text of rollouts as text.
 *
 * @example
 * ```ts
 * import { Dashboard } from 'fulmar/dashboard'
 * import { RunLog } from 'fulmar/train'
 * import assert from 'node:assert/strict'
 * import { mkdtemp } from 'node:fs/promises'
 * import { tmpdir } from 'node:os'
 * import { join } from 'node:path'
 *
 * const folder = await mkdtemp(join(tmpdir(), 'fulmar-'))
 * const log = await RunLog.open({ folder, config: { seed: 7 } })
 * log.append({ event: 'step', phase: 'grpo', step: 1, numSteps: 4, metrics: { reward: 0.5 } })
 * log.flush() // the run is not finished
 * await using dashboard = await Dashboard.open({ runs: [folder] })
 * const answer = await fetch(`${dashboard.url}api/runs`)
 * assert.match(await answer.text(), /"state":"grpo step 1 of 4"/)
 * log.close()
 * ```
 */
export class Dashboard {
  /** Address of the page, such as `http://127.0.0.1:41234/`. */
  readonly url: string
  readonly #server: Server
  readonly #runs: readonly RunTail[]
  readonly #port: number

  private constructor(server: Server, runs: readonly RunTail[]) {
    this.#server = server
    this.#runs = runs
    this.#port = (server.address() as AddressInfo).port
    this.url = `http://127.0.0.1:${this.#port}/`
    server.on('request', (request, response) => void this.#handle(request, response))
  }

  /**
   * Reads the runs and starts the server.
   * @throws {FulmarError} `UNKNOWN_NAME` for an option; `EMPTY` without a run; `LIMIT_EXCEEDED` for more than 64; `IO` or `MALFORMED` for
   * a folder that is not there or holds no run; `OUT_OF_RANGE` for a port; `UNAVAILABLE` if it is taken.
   */
  static async open(options: DashboardOptions): Promise<Dashboard> {
    checkKnownKeys('options', options, ['runs', 'port'], ['runs'])
    const { runs, port = 0 } = options
    checkRuns(runs)
    if (!Number.isSafeInteger(port) || port < 0 || port > 65_535)
      throw new FulmarError('OUT_OF_RANGE', `port must be an integer from 0 to 65535: got ${port}`)
    const opened: RunTail[] = []
    for (const folder of runs) opened.push(await RunTail.open(folder))
    const server = createServer({ maxHeaderSize: HEADER_BYTES_MAX })
    server.maxConnections = CONNECTIONS_MAX
    await bind(server, port)
    return new Dashboard(server, opened)
  }

  /** Closes the server and its connections; doing it twice is harmless. */
  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()))
    this.#server.closeAllConnections()
    await closed
  }

  /** Closes the server, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const send = ({ status = 200, type, body, headers = {} }: Answer) => {
      response.writeHead(status, { ...SAFE_HEADERS, 'content-type': type, ...headers })
      response.end(body)
    }
    try {
      send(await this.#answer(checkedUrl(request, this.#port)))
    } catch (error) {
      send(failure(error))
    }
  }

  async #answer(url: URL): Promise<Answer> {
    const file = pageFile(url.pathname)
    if (file) {
      const { type, bytes } = await file
      return { type, body: bytes }
    }
    const route = ROUTES.get(url.pathname)
    if (route === undefined)
      throw new RequestRefusal(
        404,
        'unknown_path',
        `the path must be one of this page: got ${url.pathname.slice(0, 64)}`,
      )
    return await route(this.#runs, url)
  }
}

const ROUTES: ReadonlyMap<string, Route> = new Map([...RUN_ROUTES, ...ROLLOUT_ROUTES])

function checkRuns(runs: readonly string[]): void {
  if (!Array.isArray(runs) || !runs.every((run) => typeof run === 'string' && run !== ''))
    throw new FulmarError('MALFORMED', 'options.runs must be a list of folders: it is not')
  if (runs.length === 0) throw new FulmarError('EMPTY', 'options.runs must name a folder: the list is empty')
  if (runs.length > DASHBOARD_RUNS_MAX)
    throw new FulmarError(
      'LIMIT_EXCEEDED',
      `options.runs must have at most ${DASHBOARD_RUNS_MAX} folders: got ${runs.length}`,
    )
}

/** @throws {FulmarError} `UNAVAILABLE` if the port is taken. */
async function bind(server: Server, port: number): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', (cause) => {
      reject(
        new FulmarError('UNAVAILABLE', `port must be free: got ${port} (${messageOf(cause)})`, { cause }),
      )
    })
    server.listen({ host: '127.0.0.1', port }, resolve)
  })
}
