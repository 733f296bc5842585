/**
 * A transport to an MCP server over the standard input and output of a process.
 *
 * The transport of the official client ends a process, not what it started, cannot run it in a sandbox, and takes any
 * number of messages.
 */

import { type ChildProcess, spawn } from 'node:child_process'
import { messageOf } from '../core/index.js'
import { killGroup, startInBubblewrap } from './bubblewrap.js'
import type { McpCommand } from './mcp-server.js'

/** Maximum length of a message from a server, in bytes. */
const MCP_MESSAGE_BYTES_MAX = 16_777_216

/** Maximum number of bytes from a server between two answers. */
const MCP_FLOOD_BYTES_MAX = 67_108_864

/** Maximum number of lines in a row that are no message. */
const MCP_BAD_LINES_MAX = 1_000

/** Number of last characters of a server's standard error that are kept. */
const COMPLAINT_CHARS_MAX = 1_000

/** Limits of a server in a sandbox. Engines of JavaScript reserve far more address space than they use. */
const SANDBOX_LIMITS = ['--data=2147483648', '--nproc=128', '--nofile=1024', '--fsize=67108864', '--core=0']
const HOME_BYTES = 67_108_864

/** Closes descriptors that bubblewrap passed on. */
const CLOSE_AND_RUN =
  // biome-ignore lint/suspicious/noTemplateCurlyInString: variables of the shell
  'for fd in /proc/self/fd/*; do fd="${fd##*/}"; if [ "$fd" -gt 2 ]; then eval "exec $fd>&-"; fi; done; exec "$@"'

/** Reads a message; throws for another line. */
type Reader = (line: string) => unknown

/** A process that speaks MCP. The client sets the three callbacks. */
export class McpStdio {
  onclose?: () => void
  onerror?: (error: Error) => void
  onmessage?: (message: never) => void
  readonly #server: McpCommand
  readonly #read: Reader
  #child: ChildProcess | undefined
  #complaint = ''
  #reason: string | undefined
  #line: Buffer[] = []
  #lineBytes = 0
  #floodBytes = 0
  #numBadLines = 0

  constructor(server: McpCommand, read: Reader) {
    this.#server = server
    this.#read = read
  }

  /** Reason why the process ended, with what it wrote on standard error. */
  get reason(): string {
    const complaint = this.#complaint.trim()
    return `${this.#reason ?? 'it runs'}${complaint === '' ? '' : `; it wrote ${JSON.stringify(complaint)}`}`
  }

  start(): Promise<void> {
    const child = started(this.#server)
    this.#child = child
    child.stdin?.on('error', () => {}) // its end is seen below
    child.stdout?.on('data', (bytes: Buffer) => {
      child.stdout?.pause()
      void this.#take(bytes).then(() => child.stdout?.resume())
    })
    child.stderr?.on('data', (bytes: Buffer) => {
      this.#complaint = (this.#complaint + bytes.toString('utf8')).slice(-COMPLAINT_CHARS_MAX)
    })
    return new Promise((resolve, reject) => {
      child.on('spawn', resolve)
      child.on('error', (error) => {
        this.#end(`it could not be started: ${messageOf(error)}`)
        reject(error)
      })
      // What the server started may hold its output open.
      child.on('exit', () => killGroup(child))
      child.on('close', (code, signal) => this.#end(`it ended with ${signal ?? `exit code ${code}`}`))
    })
  }

  send(message: unknown): Promise<void> {
    if (this.#reason === undefined) this.#child?.stdin?.write(`${JSON.stringify(message)}\n`)
    return Promise.resolve()
  }

  close(): Promise<void> {
    this.#end('it was closed')
    return Promise.resolve()
  }

  #end(reason: string): void {
    if (this.#reason !== undefined) return
    this.#reason = reason
    if (this.#child) killGroup(this.#child)
    this.onclose?.()
  }

  async #take(bytes: Buffer): Promise<void> {
    this.#floodBytes += bytes.length
    if (this.#floodBytes > MCP_FLOOD_BYTES_MAX)
      this.#end(`it wrote more than ${MCP_FLOOD_BYTES_MAX} bytes without an answer`)
    let rest = bytes
    for (let at = rest.indexOf(10); at >= 0 && this.#reason === undefined; at = rest.indexOf(10)) {
      this.#line.push(rest.subarray(0, at))
      const line = Buffer.concat(this.#line).toString('utf8')
      this.#line = []
      this.#lineBytes = 0
      await this.#message(line)
      rest = rest.subarray(at + 1)
    }
    this.#line.push(rest)
    this.#lineBytes += rest.length
    if (this.#lineBytes > MCP_MESSAGE_BYTES_MAX)
      this.#end(`it wrote a message of more than ${MCP_MESSAGE_BYTES_MAX} bytes`)
  }

  /** Passes a message on. Other lines are left out, as servers write logs there, too. */
  async #message(line: string): Promise<void> {
    if (line.trim() === '') return
    try {
      const message = this.#read(line)
      this.#numBadLines = 0
      if (isAnswer(message)) this.#floodBytes = 0
      this.onmessage?.(message as never)
      // The client forgets the listener of progress at an answer, but reads a notification a moment later.
      if (!isAnswer(message)) await new Promise(setImmediate)
    } catch (error) {
      this.#numBadLines += 1
      if (this.#numBadLines > MCP_BAD_LINES_MAX)
        this.#end(`it wrote ${MCP_BAD_LINES_MAX} lines that are no messages`)
      else this.onerror?.(error instanceof Error ? error : new Error(messageOf(error)))
    }
  }
}

function started(server: McpCommand): ChildProcess {
  const { command, args = [], env = {}, cwd, sandbox = false } = server
  if (sandbox === false) {
    return spawn(command, args, {
      stdio: 'pipe',
      env: { ...inherited(), ...env },
      detached: true,
      ...(cwd !== undefined && { cwd }),
    })
  }
  const { readOnly = [], bwrap = 'bwrap' } = sandbox === true ? {} : sandbox
  const limited = ['prlimit', ...SANDBOX_LIMITS, '--', command, ...args]
  return startInBubblewrap({
    command: ['bash', '-c', CLOSE_AND_RUN, 'bash', ...limited],
    bwrap,
    homeBytes: HOME_BYTES,
    readOnly,
    env,
  })
}

/** The variables that a server needs to find programs and its folders; no secrets of this process. */
function inherited(): Record<string, string> {
  const names = ['PATH', 'HOME', 'USER', 'LANG', 'TMPDIR', 'SystemRoot', 'PATHEXT', 'APPDATA', 'TEMP']
  return Object.fromEntries(
    names.flatMap((name) => (process.env[name] === undefined ? [] : [[name, process.env[name] ?? '']])),
  )
}

function isAnswer(message: unknown): boolean {
  return typeof message === 'object' && message !== null && ('result' in message || 'error' in message)
}
