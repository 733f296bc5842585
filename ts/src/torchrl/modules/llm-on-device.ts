/** A vLLM server that this process starts, on devices of its own. Node only. */

import { aborted, bounded, withDeadline } from '../../async/index.js'
import type { ProgramEnd } from '../../async/programs.js'
import { checkKnownKeys, checkList, describeValue, FulmarError } from '../../core/index.js'
import { defaultHttpClient, type HttpClient } from '../../native/index.js'
import { type Clock, systemClock } from '../../telemetry/index.js'
import { AsyncVLLM, type AsyncVLLMOptions } from '../../vllm/async-vllm.js'
import { vLLMWrapper } from './vllm-wrapper.js'
import type { LLMWrapperOptions } from './wrapper-options.js'

/** Options of {@link LLMOnDevice.start}. */
export interface LLMOnDeviceOptions {
  /** Numbers of the GPUs that the server sees, as `CUDA_VISIBLE_DEVICES`. @default those of this process */
  readonly devices?: readonly number[]
  /** Numbers of the bundles of a placement group of Ray that its workers take, as `VLLM_RAY_BUNDLE_INDICES`. @default none */
  readonly bundleIndices?: readonly number[]
  /** Address that the server listens at, as its command says. @default 'http://127.0.0.1:8000' */
  readonly url?: string
  /** Variables of the server in addition to those of this process. @default none */
  readonly env?: Readonly<Record<string, string>>
  /** Longest time until the server is healthy, in milliseconds. @default 600_000 */
  readonly startTimeoutMs?: number
  /** HTTP client of the server; closed with it. @default that of the runtime */
  readonly client?: HttpClient
  /** Measures waits. @default systemClock */
  readonly clock?: Clock
  /** Kills the server. */
  readonly signal?: AbortSignal
  /** Other options of the policy. @default none */
  readonly connect?: Omit<AsyncVLLMOptions, 'client' | 'clock'>
}

const KEYS = [
  'devices',
  'bundleIndices',
  'url',
  'env',
  'startTimeoutMs',
  'client',
  'clock',
  'signal',
  'connect',
]

/** Most devices, and most bundles. */
const DEVICES_MAX = 1024

/** Time between two questions whether the server is healthy. */
const PAUSE_MS = 500

/** Longest time for one of them. */
const HEALTH_TIMEOUT_MS = 10_000

/**
 * A `vllm serve` in a process group of its own, with a policy over it. The group is killed when it is closed, when the signal fires and
 * when this process exits.
 *
 * @example
 * ```ts no-run
 * import { LLMOnDevice } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const command = ['vllm', 'serve', 'Qwen/Qwen3-0.6B', '--port', '8000']
 * const llm = await LLMOnDevice.start(command, { devices: [1], url: 'http://127.0.0.1:8000' })
 * const wrapper = llm.wrapper({ inputMode: 'tokens' })
 * assert.equal(wrapper.policy, llm.policy)
 * await llm.close()
 * ```
 */
export class LLMOnDevice {
  /** Policy over the server. */
  readonly policy: AsyncVLLM
  /** Settles when the server has ended, with its exit code and the end of its output. */
  readonly ended: Promise<{ readonly exitCode: number | null; readonly log: string }>
  readonly #stop: AbortController

  private constructor(policy: AsyncVLLM, ended: Promise<ProgramEnd>, stop: AbortController) {
    this.policy = policy
    this.ended = ended
    this.#stop = stop
  }

  /**
   * Starts the program `command`, without a shell, and waits until `/health` of its address answers.
   * @throws {FulmarError} `UNKNOWN_NAME`, `MALFORMED`, `EMPTY` or `OUT_OF_RANGE` for the command or an option; `INCOMPATIBLE` if another
   *   server answers at the address; `UNAVAILABLE` if the program cannot be started or ends, with the end of its output; `TIMEOUT`;
   *   `ABORTED` if the signal fires; those of `AsyncVLLM.connect`. The group is killed then.
   */
  static async start(command: readonly string[], options: LLMOnDeviceOptions = {}): Promise<LLMOnDevice> {
    checkOptions(options)
    checkCommand(command)
    const { url = 'http://127.0.0.1:8000', clock = systemClock, signal, connect = {} } = options
    const { startTimeoutMs = 600_000, client = defaultHttpClient({ numConnections: 256 }) } = options
    const stop = new AbortController()
    const server = { url: url.replace(/\/(?:v1\/?)?$/, ''), client, clock, signal: anySignal(stop, signal) }
    let ended: Promise<ProgramEnd> | undefined
    try {
      await checkFree(server)
      const { Programs } = await import('../../async/programs.js')
      const env = environmentOf(options)
      const running = new Programs().run({ command: [...command], env, clock, signal: server.signal })
      running.catch(() => {})
      ended = running
      const early = running.then((end) => {
        throw endedEarly(command, end)
      })
      early.catch(() => {})
      const waited = await withDeadline({
        ...{ clock, timeoutMs: startTimeoutMs, signal },
        run: () => Promise.race([healthy(server), early]),
      })
      if (waited.kind === 'thrown') throw waited.error
      if (waited.kind === 'timeout')
        throw new FulmarError(
          'TIMEOUT',
          `${server.url}/health must answer within ${startTimeoutMs} ms: it did not`,
        )
      const policy = await Promise.race([AsyncVLLM.connect(url, { ...connect, client, clock }), early])
      return new LLMOnDevice(policy, running, stop)
    } catch (error) {
      stop.abort()
      await ended?.catch(() => {})
      await client.close()
      throw error
    }
  }

  /** Returns a wrapper over the policy. @throws {FulmarError} As `vLLMWrapper`. */
  wrapper(options: LLMWrapperOptions = {}): vLLMWrapper {
    return new vLLMWrapper(this.policy, options)
  }

  /** Kills the group, and waits for its end. Repeated calls do nothing. */
  async close(): Promise<void> {
    this.#stop.abort()
    await this.ended.catch(() => {})
    await this.policy.close()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}

/** A server that is started. */
interface StartedServer {
  readonly url: string
  readonly client: HttpClient
  readonly clock: Clock
  readonly signal: AbortSignal
}

const anySignal = (stop: AbortController, signal: AbortSignal | undefined): AbortSignal =>
  signal ? AbortSignal.any([stop.signal, signal]) : stop.signal

/** The status of `/health`; nothing if there is no answer. @throws {FulmarError} `ABORTED`. */
async function healthOf({ url, client, clock, signal }: StartedServer): Promise<number | undefined> {
  const answer = await bounded({
    ...{ clock, timeoutMs: HEALTH_TIMEOUT_MS, signal },
    run: ({ signal: ends }) =>
      client.send({ method: 'GET', url: `${url}/health`, headers: {}, signal: ends }),
  })
  if (answer.kind === 'aborted') throw aborted(signal)
  return answer.kind === 'value' ? answer.value.status : undefined
}

/** Waits until the server is healthy: it has no answer, or another status, while it loads its model. */
async function healthy(server: StartedServer): Promise<void> {
  while ((await healthOf(server)) !== 200) {
    const { clock, signal } = server
    const paused = await bounded({
      clock,
      timeoutMs: PAUSE_MS,
      signal,
      run: () => new Promise<never>(() => {}),
    })
    if (paused.kind === 'aborted') throw aborted(signal)
  }
}

/** Refuses an address where another server would be taken for this one. */
async function checkFree(server: StartedServer): Promise<void> {
  const status = await healthOf(server)
  if (status === undefined) return
  const detail = `options.url must be free for the server: ${server.url} answers already, with status ${status}`
  throw new FulmarError('INCOMPATIBLE', detail)
}

function endedEarly(command: readonly string[], { exitCode, log }: ProgramEnd): FulmarError {
  const how = exitCode === null ? 'it was killed' : `it ended with code ${exitCode}`
  return new FulmarError(
    'UNAVAILABLE',
    `command must keep serving: ${how} (${command[0]}: ${log.trim().slice(-2000)})`,
  )
}

function environmentOf({ devices, bundleIndices, env = {} }: LLMOnDeviceOptions): NodeJS.ProcessEnv {
  return {
    ...process.env,
    ...(devices && { CUDA_VISIBLE_DEVICES: devices.join(',') }),
    ...(bundleIndices && { VLLM_RAY_BUNDLE_INDICES: bundleIndices.join(',') }),
    ...env,
  }
}

function checkCommand(command: readonly string[]): void {
  checkList('command', command)
  if (command.length === 0) throw new FulmarError('EMPTY', 'command must name a program: the list is empty')
  const wrong = [...command].find((word) => typeof word !== 'string' || word.includes('\0'))
  if (wrong === undefined && command[0] !== '') return
  throw new FulmarError(
    'MALFORMED',
    `command must be texts, a program first: got ${describeValue(wrong ?? '')}`,
  )
}

function checkOptions(options: LLMOnDeviceOptions): void {
  checkKnownKeys('options', options, KEYS)
  const { url = 'http://127.0.0.1:8000', env = {}, startTimeoutMs = 1, connect = {} } = options
  checkNumbers('devices', options.devices)
  checkNumbers('bundleIndices', options.bundleIndices)
  checkKnownKeys(
    'options.connect',
    connect,
    Object.keys(connect).filter((key) => key !== 'client' && key !== 'clock'),
  )
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol))
    throw new FulmarError(
      'MALFORMED',
      `options.url must be a URL of http or https: got ${describeValue(url)}`,
    )
  if (!(startTimeoutMs > 0))
    throw new FulmarError(
      'OUT_OF_RANGE',
      `options.startTimeoutMs must be above 0: got ${describeValue(startTimeoutMs)}`,
    )
  const [name] = Object.entries(env).find(([, value]) => typeof value !== 'string') ?? []
  if (name !== undefined)
    throw new FulmarError('MALFORMED', `options.env.${name} must be a text: got ${describeValue(env[name])}`)
}

/** Refuses what is no list of different numbers. */
function checkNumbers(name: string, numbers: readonly number[] | undefined): void {
  if (numbers === undefined) return
  checkList(`options.${name}`, numbers)
  const values = [...numbers]
  const wrong = values.find((one, at) => !Number.isSafeInteger(one) || one < 0 || values.indexOf(one) !== at)
  if (wrong !== undefined)
    throw new FulmarError(
      'OUT_OF_RANGE',
      `options.${name} must be different integers from 0: got ${describeValue(wrong)}`,
    )
  if (values.length > DEVICES_MAX)
    throw new FulmarError(
      'LIMIT_EXCEEDED',
      `options.${name} must be at most ${DEVICES_MAX}: got ${values.length}`,
    )
}
