/** An interpreter of Python in a process of its own, which runs one block of code after another. */

import type { ChildProcess } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { onAbort } from '../async/index.js'
import { FulmarError, messageOf } from '../core/index.js'
import type { Clock } from '../telemetry/index.js'
import type { SandboxLimits } from './sandbox-limits.js'

/** Result of a block of code. */
export interface PythonResult {
  /**
   * `ok`; `error` if the code raised an exception; `timeout` if the deadline passed; `ended` if the interpreter ended
   * meanwhile, such as by `os._exit` or for lack of memory. After `timeout` and `ended` all variables are gone.
   */
  readonly status: 'ok' | 'error' | 'timeout' | 'ended'
  /** Standard output as text. Bytes that are not UTF-8 are replaced. */
  readonly stdout: string
  /** Standard error as text. Output there is no failure. */
  readonly stderr: string
  /** `repr` of the last statement if it is an expression; `null` for `None` and for other statements. */
  readonly value: string | null
  /** Traceback of the exception, or the reason for `timeout` and `ended`; `null` for `ok`. */
  readonly error: string | null
  /**
   * True if something is cut, while the code ran on: both outputs together, the value, or the beginning of a traceback,
   * each of which has the limit `outputBytes`.
   */
  readonly isCut: boolean
}

/** Options of {@link Interpreter.start}. */
export interface InterpreterStart {
  /** Process that speaks the protocol of the interpreter's program on its standard input and output. */
  readonly child: ChildProcess
  readonly limits: Required<SandboxLimits>
  /** Files of the home by relative path. */
  readonly files: Readonly<Record<string, string | Uint8Array>>
  readonly clock: Clock
  /** Ends the process and all that it started. */
  readonly kill: () => void
  /** Explains why it did not start, from what it wrote on its standard error. */
  readonly why: (error: unknown) => string
}

/** Options of {@link Interpreter.run}. */
export interface BlockOptions {
  readonly timeoutMs: number
  readonly signal?: AbortSignal | undefined
}

/** Maximum length of a frame from an interpreter: an end has a value and a traceback of at most 64 MiB each. */
const FRAME_BYTES_MAX = 2 * 67_108_864 + 16

/** Deadline of a start in milliseconds. */
const START_MS_MAX = 60_000

/** Number of last characters of a process's standard error that are kept. */
const COMPLAINT_CHARS_MAX = 2_000

/** Something that may keep this program alive. */
interface Held {
  ref(): unknown
  unref(): unknown
}

/** End of a block. */
type BlockEnd = Pick<PythonResult, 'status' | 'value' | 'error'> & { readonly isEndCut?: boolean }

/** A block that runs, with its outputs so far. */
interface Waiting {
  readonly heard: { readonly stdout: Buffer[]; readonly stderr: Buffer[]; isCut: boolean }
  readonly settle: (end: BlockEnd) => void
}

/**
 * One interpreter. Blocks run one at a time and share variables; the process ends with `close`, at a deadline, or
 * with its code. While no block runs it does not keep this program alive.
 */
export class Interpreter {
  readonly #child: ChildProcess
  readonly #clock: Clock
  readonly #kill: () => void
  #complaint = ''
  #rest: Buffer = Buffer.alloc(0)
  #isAlive = true
  #waiting: Waiting | undefined
  #onReady: ((problem: string | undefined) => void) | undefined
  #last: string | undefined

  private constructor({ child, clock, kill }: InterpreterStart) {
    this.#child = child
    this.#clock = clock
    this.#kill = kill
    child.stdin?.on('error', () => {}) // its end is seen below
    child.stdout?.on('error', () => {})
    child.stdout?.on('data', (bytes: Buffer) => this.#take(bytes))
    child.stderr?.on('data', (bytes: Buffer) => {
      this.#complaint = (this.#complaint + bytes.toString('utf8')).slice(-COMPLAINT_CHARS_MAX)
    })
    child.on('error', (error) => this.#ended(messageOf(error)))
    child.on('close', () => this.#ended(undefined))
  }

  /**
   * Waits until the process is ready, and writes its files.
   * @throws {FulmarError} `UNAVAILABLE` if it does not start; `LIMIT_EXCEEDED` if its files do not fit.
   */
  static async start(options: InterpreterStart): Promise<Interpreter> {
    const interpreter = new Interpreter(options)
    const { clock, limits, files, why } = options
    const stop = clock.startTimer(START_MS_MAX, () => interpreter.#ended(`no answer in ${START_MS_MAX} ms`))
    const problem = await new Promise<string | undefined>((resolve) => {
      interpreter.#onReady = resolve
      options.child.stdin?.write(setup(limits, files))
    })
    stop()
    if (problem === undefined) {
      interpreter.#hold(false)
      return interpreter
    }
    if (problem.startsWith('file ')) throw new FulmarError('LIMIT_EXCEEDED', problem)
    const reason = why(new Error(interpreter.#complaint.trim() || problem))
    throw new FulmarError('UNAVAILABLE', `interpreter must start: got ${reason}`)
  }

  get isAlive(): boolean {
    return this.#isAlive
  }

  /**
   * Runs a block; a failure of its code is a result.
   * @throws {FulmarError} `ABORTED` if the signal fires, which ends the interpreter; `CLOSED` if it has ended;
   * `INCOMPATIBLE` while another block runs.
   */
  async run(code: string, { timeoutMs, signal }: BlockOptions): Promise<PythonResult> {
    if (!this.#isAlive) throw new FulmarError('CLOSED', 'interpreter must be alive: it has ended')
    if (this.#waiting)
      throw new FulmarError('INCOMPATIBLE', 'blocks must run one at a time: another one runs')
    const heard = { stdout: [] as Buffer[], stderr: [] as Buffer[], isCut: false }
    this.#hold(true)
    const stopTimer = this.#clock.startTimer(timeoutMs, () =>
      this.#fail('timeout', `Code execution timed out: no end within ${timeoutMs} ms`),
    )
    const stopSignal = onAbort(signal, () => this.#fail('ended', 'it was stopped'))
    try {
      const { isEndCut = false, ...end } = await new Promise<BlockEnd>((settle) => {
        this.#waiting = { heard, settle }
        if (signal?.aborted) this.#fail('ended', 'it was stopped')
        else this.#child.stdin?.write(request(code))
      })
      if (signal?.aborted) throw new FulmarError('ABORTED', 'signal must not fire during the run: it did')
      const { stdout, stderr, isCut } = heard
      return { ...end, stdout: textOf(stdout), stderr: textOf(stderr), isCut: isCut || isEndCut }
    } finally {
      stopTimer()
      stopSignal()
      this.#hold(false)
    }
  }

  /** Ends the process. */
  close(): void {
    this.#fail('ended', 'it was closed')
  }

  #fail(status: 'timeout' | 'ended', reason: string): void {
    this.#isAlive = false
    this.#kill()
    this.#settle({ status, value: null, error: `${reason}; all variables are gone` })
  }

  #settle(end: BlockEnd): void {
    const waiting = this.#waiting
    this.#waiting = undefined
    waiting?.settle(end)
  }

  #ended(problem: string | undefined): void {
    const reason = problem ?? this.#last ?? 'it ended'
    this.#fail('ended', reason)
    this.#ready(reason)
  }

  #ready(problem: string | undefined): void {
    const onReady = this.#onReady
    this.#onReady = undefined
    onReady?.(problem)
  }

  /** Takes whole frames from what was read. */
  #take(bytes: Buffer): void {
    let rest = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes])
    while (rest.length >= 5) {
      const length = rest.readUInt32BE(1)
      if (length > FRAME_BYTES_MAX) this.#ended('it wrote a frame that is too long')
      if (rest.length < 5 + length) break
      this.#frame(String.fromCharCode(rest[0] ?? 0), rest.subarray(5, 5 + length))
      rest = rest.subarray(5 + length)
    }
    this.#rest = rest
  }

  #frame(kind: string, data: Buffer): void {
    const heard = this.#waiting?.heard
    if (kind === 'R') this.#ready(undefined)
    else if (kind === 'O') heard?.stdout.push(Buffer.from(data))
    else if (kind === 'E') heard?.stderr.push(Buffer.from(data))
    else if (kind === 'C' && heard) heard.isCut = true
    else if (kind === 'D') this.#settle(endOf(data))
    else if (kind === 'X') this.#last = data.toString('utf8')
  }

  /** Decides whether this process waits for the interpreter. */
  #hold(holds: boolean): void {
    const { stdin, stdout, stderr } = this.#child
    // Pipes are sockets, which their types do not say.
    for (const part of [this.#child, stdin, stdout, stderr] as readonly (Partial<Held> | null)[]) {
      if (holds) part?.ref?.()
      else part?.unref?.()
    }
  }
}

function setup(limits: Required<SandboxLimits>, files: InterpreterStart['files']): Buffer {
  const { cpuSeconds, memoryBytes, fileBytes, numProcesses, numFiles, outputBytes } = limits
  const numbers = Buffer.alloc(48)
  const bounds = [cpuSeconds, memoryBytes, fileBytes, numProcesses, numFiles, outputBytes]
  bounds.forEach((bound, at) => void numbers.writeBigUInt64BE(BigInt(bound), 8 * at))
  const entries = Object.entries(files)
  return Buffer.concat([
    numbers,
    u32(entries.length),
    ...entries.flatMap(([path, data]) => [...sized(path), ...sized(data)]),
  ])
}

function request(code: string): Buffer {
  return Buffer.concat([randomBytes(16), ...sized(code)])
}

function sized(data: string | Uint8Array): readonly Uint8Array[] {
  const bytes = typeof data === 'string' ? Buffer.from(data, 'utf8') : data
  return [u32(bytes.length), bytes]
}

function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32BE(value)
  return bytes
}

/** Reads the end of a block. Its lengths were checked by the program that wrote the frame. */
function endOf(data: Buffer): BlockEnd {
  const [isOk, flags, numBytes] = [data[0] === 1, data[1] ?? 0, data.readUInt32BE(2)]
  const value = data.toString('utf8', 6, 6 + numBytes)
  const error = data.toString('utf8', 10 + numBytes)
  const parts = { value: flags & 1 ? value : null, error: isOk ? null : error, isEndCut: (flags & 2) !== 0 }
  return { status: isOk ? 'ok' : 'error', ...parts }
}

const textOf = (parts: readonly Buffer[]) => Buffer.concat(parts).toString('utf8')
