/** Interpreters of Python in sandboxes: one a block or one a conversation, some of them started ahead. */

import { onAbort } from '../async/index.js'
import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import { type Clock, systemClock } from '../telemetry/index.js'
import type { Interpreter, PythonResult } from './interpreter.js'
import { checkPath, type SandboxOptions } from './sandbox.js'
import { backendHere, checkBackend, type SandboxBackend } from './sandbox-backend.js'
import { checkedLimits, type SandboxLimits } from './sandbox-limits.js'

/** Options of interpreters. */
export interface InterpreterOptions extends SandboxOptions {
  /**
   * If true, blocks of a conversation share an interpreter and its variables; if false, each block has its own.
   * @default false
   */
  readonly persistent?: boolean
  /**
   * Limits. `timeoutMs` and `outputBytes` are those of a block, `cpuSeconds` those of an interpreter.
   * @default 8,000 ms, 16,384 bytes of output, 60 s; the others as in {@link SandboxLimits}
   */
  readonly limits?: SandboxLimits
  /** Number of interpreters started ahead. An integer from 0. @default 2, and 1 of Pyodide, which takes more time and memory */
  readonly numWarm?: number
  /** Maximum number of interpreters at once, over all conversations. A positive integer. @default 64 */
  readonly maxInterpreters?: number
}

/** The names of {@link InterpreterOptions}. */
const INTERPRETER_KEYS = [
  ...['backend', 'files', 'limits', 'bwrap', 'clock'],
  ...['persistent', 'numWarm', 'maxInterpreters'],
] as const

/** Below the defaults of a `ToolRunner`: 10 s for a call, 65,536 characters for its result. */
const LIMITS = { timeoutMs: 8_000, outputBytes: 16_384, cpuSeconds: 60 }

/** With two, one starts while another runs. */
const NUM_WARM = { bubblewrap: 2, pyodide: 1 }

/** Context of a block. */
export interface BlockContext {
  readonly signal?: AbortSignal | undefined
  /** Fires when the conversation ends: what the interpreter of a conversation is kept under. */
  readonly conversation?: AbortSignal | undefined
}

/** The interpreter of a conversation. Its blocks take turns. */
interface Session {
  turn: Promise<unknown>
  interpreter: Interpreter | undefined
}

/** Runs blocks, and holds the interpreters. */
export class Interpreters {
  readonly persistent: boolean
  readonly limits: Required<SandboxLimits>
  readonly #files: Readonly<Record<string, string | Uint8Array>>
  readonly #asked: 'auto' | SandboxBackend
  readonly #bwrap: string
  #backend: Promise<SandboxBackend> | undefined
  readonly #clock: Clock
  readonly #numWarm: number | undefined
  readonly #max: number
  readonly #open = new Set<Interpreter>()
  readonly #warm: Promise<Interpreter | undefined>[] = []
  readonly #sessions = new Map<AbortSignal, Session>()
  #numStarting = 0
  #isClosed = false

  /** @throws {FulmarError} `UNKNOWN_NAME`, `OUT_OF_RANGE` or `MALFORMED` for an option. */
  constructor(options: InterpreterOptions) {
    const { backend = 'auto', files = {}, bwrap = 'bwrap', clock = systemClock } = options
    const { persistent = false, numWarm, maxInterpreters = 64 } = options
    checkBackend(backend)
    if (typeof persistent !== 'boolean') {
      const detail = `options.persistent must be true or false: got ${describeValue(persistent)}`
      throw new FulmarError('MALFORMED', detail)
    }
    if (numWarm !== undefined) checkCount('numWarm', numWarm, 0)
    checkCount('maxInterpreters', maxInterpreters, 1)
    for (const path of Object.keys(files)) checkPath(path)
    this.persistent = persistent
    this.limits = checkedLimits({ ...LIMITS, ...options.limits })
    this.#files = files
    this.#asked = backend
    this.#bwrap = bwrap
    this.#clock = clock
    this.#numWarm = numWarm
    this.#max = maxInterpreters
  }

  /**
   * Runs a block.
   * @throws {FulmarError} `UNAVAILABLE` if no sandbox works here; `LIMIT_EXCEEDED` if all interpreters are taken;
   * `INCOMPATIBLE` for a persistent one without a conversation; `CLOSED` if the conversation has ended; `ABORTED`.
   */
  async run(code: string, context: BlockContext): Promise<PythonResult> {
    if (this.#isClosed) throw closed()
    if (this.persistent) return await this.#runInSession(code, context)
    const interpreter = await this.#take()
    try {
      return await this.#runIn(interpreter, code, context)
    } finally {
      this.#end(interpreter)
    }
  }

  /** Number of interpreters, those started ahead included. */
  get numOpen(): number {
    return this.#open.size + this.#numStarting
  }

  /** Ends all interpreters. */
  close(): void {
    this.#isClosed = true
    for (const interpreter of [...this.#open]) this.#end(interpreter)
    this.#sessions.clear()
  }

  #runInSession(code: string, context: BlockContext): Promise<PythonResult> {
    const session = this.#sessionOf(context.conversation)
    const result = session.turn.then(async () => {
      if (context.conversation?.aborted) throw ended()
      session.interpreter ??= await this.#take()
      const { interpreter } = session
      try {
        return await this.#runIn(interpreter, code, context)
      } finally {
        if (!interpreter.isAlive || context.conversation?.aborted) {
          this.#end(interpreter)
          session.interpreter = undefined
        }
      }
    })
    session.turn = result.catch(() => {})
    return result
  }

  #sessionOf(conversation: AbortSignal | undefined): Session {
    if (conversation === undefined) {
      const detail = 'conversation must be given for a persistent interpreter: it is undefined'
      throw new FulmarError('INCOMPATIBLE', detail)
    }
    if (conversation.aborted) throw ended()
    const known = this.#sessions.get(conversation)
    if (known) return known
    const session: Session = { turn: Promise.resolve(), interpreter: undefined }
    this.#sessions.set(conversation, session)
    onAbort(conversation, () => {
      this.#sessions.delete(conversation)
      if (session.interpreter) this.#end(session.interpreter)
    })
    return session
  }

  #runIn(interpreter: Interpreter, code: string, { signal }: BlockContext): Promise<PythonResult> {
    return interpreter.run(code, { timeoutMs: this.limits.timeoutMs, signal })
  }

  /** Takes an interpreter that was started ahead, or starts one. */
  async #take(): Promise<Interpreter> {
    let interpreter: Interpreter | undefined
    while (!interpreter?.isAlive) {
      if (interpreter) this.#end(interpreter)
      const ahead = this.#warm.shift()
      interpreter = ahead ? await ahead : await this.#start()
    }
    const numWarm = this.#numWarm ?? NUM_WARM[(await this.#backend) ?? 'pyodide']
    while (this.#warm.length < numWarm && this.numOpen < this.#max) {
      this.#warm.push(this.#start().catch(() => undefined))
    }
    return interpreter
  }

  async #start(): Promise<Interpreter> {
    if (this.numOpen >= this.#max) {
      const detail = `interpreters must be at most ${this.#max} at once: got one more; raise maxInterpreters`
      throw new FulmarError('LIMIT_EXCEEDED', detail)
    }
    this.#numStarting += 1
    try {
      const interpreter = await this.#startHere()
      if (this.#isClosed) {
        interpreter.close()
        throw closed()
      }
      this.#open.add(interpreter)
      return interpreter
    } finally {
      this.#numStarting -= 1
    }
  }

  async #startHere(): Promise<Interpreter> {
    this.#backend ??= backendHere(this.#asked, this.#bwrap)
    let backend: SandboxBackend
    try {
      backend = await this.#backend
    } catch (error) {
      this.#backend = undefined
      throw error
    }
    // Child processes are of Node alone.
    if (backend === 'bubblewrap') return await this.#startInBubblewrap()
    const { startPyodide } = await import('./pyodide-run.js')
    return await startPyodide(this.limits, this.#files, this.#clock)
  }

  async #startInBubblewrap(): Promise<Interpreter> {
    const [{ killGroup, startInBubblewrap, whyNoBubblewrap }, { Interpreter }, { INTERPRETER_PROGRAM }] =
      await Promise.all([
        import('./bubblewrap.js'),
        import('./interpreter.js'),
        import('./interpreter-program.js'),
      ])
    const { homeBytes } = this.limits
    const command = ['/usr/bin/python3', '-I', '-c', INTERPRETER_PROGRAM]
    const child = startInBubblewrap({ command, bwrap: this.#bwrap, homeBytes })
    return await Interpreter.start({
      child,
      limits: this.limits,
      files: this.#files,
      clock: this.#clock,
      kill: () => killGroup(child),
      why: whyNoBubblewrap,
    })
  }

  #end(interpreter: Interpreter): void {
    interpreter.close()
    this.#open.delete(interpreter)
  }
}

const closed = () => new FulmarError('CLOSED', 'interpreters must be open: they were closed')

const ended = () => new FulmarError('CLOSED', 'conversation must be under way: it has ended')

function checkCount(name: string, value: number, least: number): void {
  if (Number.isSafeInteger(value) && value >= least) return
  const detail = `options.${name} must be an integer from ${least}: got ${describeValue(value)}`
  throw new FulmarError('OUT_OF_RANGE', detail)
}

/** @throws {FulmarError} `UNKNOWN_NAME` for an unknown option. */
export function checkInterpreterKeys(options: object, more: readonly string[] = []): void {
  checkKnownKeys('options', options, [...INTERPRETER_KEYS, ...more])
}
