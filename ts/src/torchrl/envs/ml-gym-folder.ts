/** The folder of an agent: commands, edits, a time budget, and the submission at the end. */

import { FulmarError, messageOf, parseJson } from '../../core/index.js'
import type { Clock } from '../../telemetry/index.js'
import {
  Sandbox,
  type SandboxLimits,
  type SandboxProgram,
  type SandboxResult,
  type Tool,
  tool,
} from '../../tools/index.js'
import type { MLGymFailure } from './ml-gym-score.js'
import type { MLGymFiles, MLGymTask } from './ml-gym-task.js'

/** Parts of an {@link MLGymFolder}. */
export interface MLGymFolderOptions {
  readonly limits: Required<SandboxLimits>
  readonly budgetMs: number
  /** Characters of the output of a command that the agent sees. */
  readonly maxChars: number
  readonly bwrap: string
  readonly clock: Clock
}

/** Prints the kind and the size of each path that it reads; a path through a link is a link. */
const LOOK = `import json, os, stat, sys
def look(path):
    try:
        about = os.lstat(path)
    except OSError:
        return ["missing", 0]
    if os.path.realpath(path) != os.path.join(os.getcwd(), path):
        return ["link", 0]
    return ["file" if stat.S_ISREG(about.st_mode) else "other", about.st_size]
print(json.dumps([look(path) for path in json.load(sys.stdin)]))`

/** Codes of errors that are the sandbox's, not the agent's. */
const BROKEN: readonly string[] = ['UNAVAILABLE', 'CLOSED']

/** A sandbox with the tools of one agent. */
export class MLGymFolder {
  /** Commands, code, files and the end. */
  readonly tools: readonly Tool[]
  readonly #sandbox: Sandbox
  readonly #options: MLGymFolderOptions
  #spentMs = 0
  #isSubmitted = false
  #broken: string | undefined

  private constructor(sandbox: Sandbox, options: MLGymFolderOptions) {
    this.#sandbox = sandbox
    this.#options = options
    this.tools = this.#tools()
  }

  /** @throws {FulmarError} As `Sandbox.open`. */
  static async open(files: MLGymFiles, options: MLGymFolderOptions): Promise<MLGymFolder> {
    const { limits, bwrap, clock } = options
    const sandbox = await Sandbox.open({ backend: 'bubblewrap', files, limits, bwrap, clock })
    return new MLGymFolder(sandbox, options)
  }

  /** True once the agent called `submit`. */
  get isSubmitted(): boolean {
    return this.#isSubmitted
  }

  /** Milliseconds for commands that are left. */
  get remainingMs(): number {
    return Math.max(0, this.#options.budgetMs - this.#spentMs)
  }

  /** The reason for which the sandbox does not work any more. */
  get broken(): string | undefined {
    return this.#broken
  }

  /**
   * Takes the files of a submission out of the folder, or says why they cannot be scored.
   * @throws {FulmarError} `ABORTED` if the signal fires.
   */
  async submission(
    { submission }: MLGymTask,
    signal: AbortSignal,
  ): Promise<{ readonly files: MLGymFiles } | MLGymFailure> {
    try {
      const look = await this.#sandbox.run({ code: LOOK }, { stdin: JSON.stringify(submission), signal })
      if (look.exitCode !== 0) return unreadable(look)
      const looks = parseJson(look.stdout) as readonly (readonly [string, number])[]
      const files: Record<string, Uint8Array> = {}
      for (const [index, path] of submission.entries()) {
        const [kind = 'missing', size = 0] = looks[index] ?? []
        if (kind === 'missing' && index > 0) continue
        const reason = this.#whyNot(path, kind, size)
        if (reason !== undefined) return { status: 'no_submission', reason }
        files[path] = await this.#sandbox.read(path)
      }
      return { files }
    } catch (error) {
      const code = error instanceof FulmarError ? error.code : undefined
      if (code === 'ABORTED') throw error
      // A file that its own owner may not read.
      return { status: code === 'IO' ? 'no_submission' : 'sandbox_failed', reason: messageOf(error) }
    }
  }

  close(): void {
    this.#sandbox.close()
  }

  #whyNot(path: string, kind: string, size: number): string | undefined {
    const { outputBytes } = this.#options.limits
    if (kind !== 'file') return `${path} must be a regular file: got ${kind === 'missing' ? 'no file' : kind}`
    if (size > outputBytes) return `${path} must have at most ${outputBytes} bytes: got ${size}`
    return undefined
  }

  #tools(): Tool[] {
    const text = { type: 'string' } as const
    return [
      tool({
        name: 'bash',
        description: 'Runs commands in the folder. Each call is a new shell.',
        schema: { type: 'object', properties: { command: text }, required: ['command'] },
        run: ({ command }, { signal }) => this.#run({ command: ['bash', '-c', command] }, signal),
      }),
      tool({
        name: 'python',
        description: 'Runs a program of Python 3 in the folder.',
        schema: { type: 'object', properties: { code: text }, required: ['code'] },
        run: ({ code }, { signal }) => this.#run({ code }, signal),
      }),
      tool({
        name: 'write',
        description: 'Writes a file.',
        schema: { type: 'object', properties: { path: text, content: text }, required: ['path', 'content'] },
        run: ({ path, content }) =>
          this.#timed(() => this.#sandbox.write(path, content), `${path} was written`),
      }),
      tool({
        name: 'edit',
        description: 'Replaces a text, which must be in the file once.',
        schema: {
          type: 'object',
          properties: { path: text, old: text, new: text },
          required: ['path', 'old', 'new'],
        },
        run: ({ path, old, new: replacement }) =>
          this.#timed(() => this.#edit(path, old, replacement), `${path} was changed`),
      }),
      tool({
        name: 'submit',
        description: 'Ends the work: the submission is scored as it is.',
        schema: { type: 'object', properties: {} },
        run: () => {
          this.#isSubmitted = true
          return 'The work is over.'
        },
      }),
    ]
  }

  async #run(program: SandboxProgram, signal: AbortSignal): Promise<string> {
    const timeoutMs = Math.max(1, Math.min(this.#options.limits.timeoutMs, Math.ceil(this.remainingMs)))
    const end = await this.#timed(() => this.#sandbox.run(program, { timeoutMs, signal }))
    const limit = end.status === 'timeout' ? `its deadline of ${timeoutMs} ms` : 'the limit of output'
    const head =
      end.status === 'exited'
        ? `exit code ${end.exitCode}`
        : `ended by ${limit}; the folder is as it was before`
    const { maxChars } = this.#options
    const stderr = end.stderr === '' ? '' : `\nstderr:\n${cut(end.stderr, maxChars)}`
    return `${head}\n${cut(end.stdout, maxChars)}${stderr}`
  }

  async #edit(path: string, old: string, replacement: string): Promise<void> {
    const before = Buffer.from(await this.#sandbox.read(path)).toString('utf8')
    const at = old === '' ? -1 : before.indexOf(old)
    if (at < 0 || before.indexOf(old, at + 1) >= 0)
      throw new FulmarError(
        'MALFORMED',
        `the old text must be in ${path} once: it is there ${at < 0 ? 'not at all' : 'more often'}`,
      )
    await this.#sandbox.write(path, before.slice(0, at) + replacement + before.slice(at + old.length))
  }

  /** Runs a piece of work on the time of the agent. */
  async #timed<T>(work: () => Promise<T>): Promise<T>
  async #timed<T>(work: () => Promise<unknown>, result: T): Promise<T>
  async #timed<T>(work: () => Promise<T>, result?: T): Promise<T> {
    const { clock, budgetMs } = this.#options
    if (this.#isSubmitted) throw new FulmarError('CLOSED', 'the work must be under way: it was submitted')
    if (this.remainingMs <= 0)
      throw new FulmarError(
        'TIMEOUT',
        `commands must take at most ${budgetMs} ms together: the time is used up`,
      )
    const startMs = clock.nowMs()
    try {
      const value = await work()
      return result ?? value
    } catch (error) {
      if (error instanceof FulmarError && BROKEN.includes(error.code)) this.#broken = messageOf(error)
      throw error
    } finally {
      this.#spentMs += clock.nowMs() - startMs
    }
  }
}

/** A look at the files that failed: a folder of the agent that takes too long, else the sandbox's own failure. */
function unreadable({ status, stderr }: SandboxResult): MLGymFailure {
  const reason = `the files of the folder must be readable: got ${status}, ${stderr.trim().slice(-300)}`
  return { status: status === 'exited' ? 'sandbox_failed' : 'no_submission', reason }
}

/** The beginning and the end of a text that is too long. */
function cut(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text
  const half = Math.floor(maxChars / 2)
  return `${text.slice(0, half)}\n[${text.length - 2 * half} characters left out]\n${text.slice(text.length - half)}`
}
