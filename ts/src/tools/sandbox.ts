/** Sandboxes: programs that a model wrote, apart from this process, its files and the network. */

import { checkGiven, checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import { type Clock, systemClock } from '../telemetry/index.js'
import type { Program, ProgramEnd } from './bubblewrap.js'
import { commandOf, type SandboxAction } from './sandbox-action.js'
import {
  backendHere,
  checkBackend,
  type SandboxBackend,
  type SandboxSupport,
  supportHere,
} from './sandbox-backend.js'
import { checkedLimits, type SandboxLimits } from './sandbox-limits.js'

/** Options of {@link Sandbox.open}. */
export interface SandboxOptions {
  /**
   * Way of keeping programs apart; `auto` takes bubblewrap where it works, else Pyodide, which needs the package
   * `pyodide`, runs code of Python but no commands, and takes seconds to start.
   * @default 'auto'
   */
  readonly backend?: 'auto' | SandboxBackend
  /**
   * Files of the home by relative path.
   * @default none
   */
  readonly files?: Readonly<Record<string, string | Uint8Array>>
  /** Limits of each run. @default those of {@link SandboxLimits} */
  readonly limits?: SandboxLimits
  /** Path or name of the program `bwrap`. @default 'bwrap' */
  readonly bwrap?: string
  /** Clock of deadlines. @default systemClock */
  readonly clock?: Clock
}

/** A program for {@link Sandbox.run}: a command with its arguments, or code of Python 3. */
export type SandboxProgram = { readonly command: readonly string[] } | { readonly code: string }

/** Options of {@link Sandbox.run}. */
export interface SandboxRunOptions {
  /** Standard input. @default empty */
  readonly stdin?: string | Uint8Array
  /** Deadline of this run in milliseconds. @default that of the limits */
  readonly timeoutMs?: number
  /** Ends the run with `ABORTED`. */
  readonly signal?: AbortSignal
}

/** Result of {@link Sandbox.run}. */
export interface SandboxResult {
  /**
   * `exited`; or the limit that ended the program: `timeout` for the deadline, `output` for too much output. The home
   * is then as it was before the run.
   */
  readonly status: 'exited' | 'timeout' | 'output'
  /** Exit code, 0 for success; 128 plus its number for a signal; `null` if a limit ended the program. */
  readonly exitCode: number | null
  /** Standard output as text, up to the limit. */
  readonly stdout: string
  /** Standard error as text, up to the limit. Output there is no failure. */
  readonly stderr: string
}

/** Maximum length of code, which is an argument of Python, in UTF-8 bytes. */
export const SANDBOX_CODE_BYTES_MAX = 100_000

/**
 * A home folder for programs that run apart from this machine. With bubblewrap, on Linux, each run has new namespaces
 * for users, processes, mounts and the network, so it sees a read-only `/usr`, its home and nothing else, and everything
 * that it starts ends with it. With Pyodide, code of Python runs as WebAssembly in a process of Node without rights; the
 * home and its memory are all that it has. Files of the home stay from run to run. Runs of one sandbox take turns. Node only.
 *
 * @example
 * ```ts
 * import { Sandbox } from 'fulmar/tools'
 * import assert from 'node:assert/strict'
 *
 * const { isUsable } = await Sandbox.support() // on Linux with bubblewrap
 * if (isUsable) {
 *   using sandbox = await Sandbox.open({ files: { 'numbers.txt': '1 2 3' } })
 *   const { stdout } = await sandbox.run({ code: 'print(sum(map(int, open("numbers.txt").read().split())))' })
 *   assert.equal(stdout, '6\n')
 *   const { exitCode } = await sandbox.run({ command: ['ls', '/root'] })
 *   assert.notEqual(exitCode, 0) // there is no such folder inside
 * } else await assert.rejects(Sandbox.open(), { code: 'UNAVAILABLE' })
 * ```
 */
export class Sandbox {
  /** Way by which programs are kept apart. */
  readonly backend: SandboxBackend
  readonly #limits: Required<SandboxLimits>
  readonly #bwrap: string
  readonly #clock: Clock
  readonly #closed = new AbortController()
  #home: Uint8Array = new Uint8Array(0)
  #turn: Promise<unknown> = Promise.resolve()

  private constructor(backend: SandboxBackend, limits: Required<SandboxLimits>, bwrap: string, clock: Clock) {
    this.backend = backend
    this.#limits = limits
    this.#bwrap = bwrap
    this.#clock = clock
  }

  /**
   * Opens a sandbox and writes its files.
   * @throws {FulmarError} `UNAVAILABLE` with the reason if no backend works here: nothing ever runs unprotected;
   * `OUT_OF_RANGE` or `UNKNOWN_NAME` for an option; as {@link Sandbox.write} for a file.
   */
  static async open(options: SandboxOptions = {}): Promise<Sandbox> {
    checkKnownKeys('options', options, ['backend', 'files', 'limits', 'bwrap', 'clock'])
    const { backend = 'auto', files = {}, bwrap = 'bwrap', clock = systemClock } = options
    checkBackend(backend)
    const limits = checkedLimits(options.limits)
    const sandbox = new Sandbox(await backendHere(backend, bwrap), limits, bwrap, clock)
    for (const [path, data] of Object.entries(files)) await sandbox.write(path, data)
    return sandbox
  }

  /**
   * Returns which backend works on this machine, or the reasons why none does. A start of Pyodide takes seconds.
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option or backend.
   */
  static async support(options: Pick<SandboxOptions, 'backend' | 'bwrap'> = {}): Promise<SandboxSupport> {
    checkKnownKeys('options', options, ['backend', 'bwrap'])
    const { backend = 'auto', bwrap = 'bwrap' } = options
    checkBackend(backend)
    return await supportHere(backend, bwrap, { isWhole: true })
  }

  /**
   * Runs a program in the home. A failure of the program is a result, not an exception.
   * @throws {FulmarError} `MALFORMED` for another form of program; `OUT_OF_RANGE` for a deadline; `LIMIT_EXCEEDED` for code of
   * more than 100,000 bytes; `INCOMPATIBLE` for a command on Pyodide; `ABORTED` if the signal fires; `CLOSED` after `close`;
   * `UNAVAILABLE` if the backend fails.
   */
  async run(program: SandboxProgram, options: SandboxRunOptions = {}): Promise<SandboxResult> {
    checkKnownKeys('options', options, ['stdin', 'timeoutMs', 'signal'])
    const { status, exitCode, stdout, stderr } = await this.#run(actionOf(program), options)
    return { status, exitCode, stdout: stdout.toString('utf8'), stderr: stderr.toString('utf8') }
  }

  /**
   * Writes a file of the home; its folders are made.
   * @throws {FulmarError} `MALFORMED` for a path that is not relative; `LIMIT_EXCEEDED` if it does not fit; `CLOSED`.
   */
  async write(path: string, data: string | Uint8Array): Promise<void> {
    checkPath(path)
    const { exitCode, stderr } = await this.#run({ kind: 'write', path }, { stdin: data })
    if (exitCode === 0) return
    const why = stderr.toString('utf8').trim().slice(0, 200)
    throw new FulmarError('LIMIT_EXCEEDED', `file ${path} must fit into the home: got ${why}`)
  }

  /**
   * Reads a file of the home.
   * @throws {FulmarError} `MALFORMED` for a path that is not relative; `IO` if it cannot be read, or is longer than the limit of
   * output; `CLOSED`.
   */
  async read(path: string): Promise<Uint8Array> {
    checkPath(path)
    const { exitCode, status, stdout, stderr } = await this.#run({ kind: 'read', path }, {})
    if (exitCode === 0) return new Uint8Array(stdout)
    const why = status === 'exited' ? stderr.toString('utf8').trim().slice(0, 200) : `the limit ${status}`
    throw new FulmarError('IO', `file ${path} must be readable: got ${why}`)
  }

  /** Ends a run in progress, which rejects with `CLOSED`, and forgets the home. */
  close(): void {
    this.#closed.abort()
    this.#home = new Uint8Array(0)
  }

  [Symbol.dispose](): void {
    this.close()
  }

  /** Runs after those before it, and keeps the home of a program that came to its own end. */
  #run(action: SandboxAction, options: SandboxRunOptions): Promise<ProgramEnd> {
    const { stdin = '', timeoutMs = this.#limits.timeoutMs, signal } = options
    const limits = checkedLimits({ ...this.#limits, timeoutMs })
    const bytes = typeof stdin === 'string' ? Buffer.from(stdin, 'utf8') : stdin
    const turn = this.#turn.then(async () => {
      const closed = this.#closed.signal
      const either = signal ? AbortSignal.any([signal, closed]) : closed
      try {
        if (closed.aborted) throw new FulmarError('CLOSED', 'sandbox must be open: it was closed')
        const end = await this.#end(action, { stdin: bytes, limits, signal: either })
        if (end.home && !closed.aborted) this.#home = end.home
        return end
      } catch (error) {
        if (!closed.aborted) throw error
        throw new FulmarError('CLOSED', 'sandbox must be open: it was closed', { cause: error })
      }
    })
    this.#turn = turn.catch(() => {})
    return turn
  }

  async #end(action: SandboxAction, run: Pick<Program, 'stdin' | 'limits' | 'signal'>): Promise<ProgramEnd> {
    const inputs = { ...run, home: this.#home, clock: this.#clock }
    // Child processes are of Node alone.
    if (this.backend === 'bubblewrap') {
      const { runInBubblewrap } = await import('./bubblewrap.js')
      return await runInBubblewrap({ ...inputs, command: commandOf(action), bwrap: this.#bwrap })
    }
    if (action.kind === 'command') {
      const detail = 'program must be { code } on Pyodide, which runs Python alone: got a command'
      throw new FulmarError('INCOMPATIBLE', detail)
    }
    const { runInPyodide } = await import('./pyodide-run.js')
    return await runInPyodide({ ...inputs, action })
  }
}

function actionOf(program: SandboxProgram): SandboxAction {
  checkGiven('program', program)
  checkKnownKeys('program', program, ['command', 'code'])
  if ('code' in program && !('command' in program) && typeof program.code === 'string') {
    const size = Buffer.byteLength(program.code)
    if (size <= SANDBOX_CODE_BYTES_MAX) return { kind: 'code', code: checked([program.code])[0] ?? '' }
    const detail = `program.code must have at most ${SANDBOX_CODE_BYTES_MAX} bytes: got ${size}`
    throw new FulmarError('LIMIT_EXCEEDED', detail)
  }
  const command = 'command' in program && !('code' in program) ? program.command : undefined
  const isCommand = Array.isArray(command) && command.length > 0
  if (isCommand && command.every((word) => typeof word === 'string'))
    return { kind: 'command', command: checked(command) }
  const detail = `program must be { command } with words or { code } with a text: got ${describeValue(program)}`
  throw new FulmarError('MALFORMED', detail)
}

function checked(command: readonly string[]): readonly string[] {
  if (!command.some((word) => word.includes('\0'))) return command
  throw new FulmarError('MALFORMED', 'program must have no NUL character: got one')
}

/** @throws {FulmarError} `MALFORMED` for a path that is not relative. */
export function checkPath(path: string): void {
  const isRelative = typeof path === 'string' && path !== '' && !path.startsWith('/') && !path.includes('\0')
  if (isRelative) return
  throw new FulmarError('MALFORMED', `path must be relative to the home: got ${describeValue(path)}`)
}
