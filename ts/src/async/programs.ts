/** Programs in process groups of their own: started, logged, and killed whole. Node only. */

import { type ChildProcess, spawn } from 'node:child_process'
import type { Readable } from 'node:stream'
import { FulmarError, messageOf } from '../core/index.js'
import type { Clock } from '../telemetry/index.js'
import { bounded, onAbort } from './index.js'

/** Number of bytes of output that are kept: the last ones. */
const LOG_BYTES_MAX = 65_536

/** Milliseconds that output may take to end after its program: a process that left the group may hold it open. */
const OUTPUT_END_MS = 1_000

/** Windows has no process groups: there the program alone is killed. */
const HAS_GROUPS = process.platform !== 'win32'

/** A program to run. */
export interface Program {
  /** Program and arguments; looked up in `PATH`, and started without a shell. */
  readonly command: readonly string[]
  /** Whole environment. */
  readonly env: NodeJS.ProcessEnv
  readonly clock: Clock
  /** Kills the program and all that it started. */
  readonly signal: AbortSignal
}

/** End of a program. */
export interface ProgramEnd {
  /** `null` if a signal ended it. */
  readonly exitCode: number | null
  /** End of its standard output and error. */
  readonly log: string
}

/** Programs that run at the same time. They are killed when this process exits. */
export class Programs {
  readonly #running = new Set<ChildProcess>()
  readonly #killAll = () => this.#running.forEach(killGroup)

  /**
   * Runs a program to its end. Nothing that it started in its group outlives it.
   * @throws {FulmarError} `UNAVAILABLE` if it cannot be started.
   */
  async run({ command, env, clock, signal }: Program): Promise<ProgramEnd> {
    const [file = '', ...args] = command
    const child = spawn(file, args, { env, stdio: ['ignore', 'pipe', 'pipe'], detached: HAS_GROUPS })
    const log = new Tail()
    const outputs = [child.stdout, child.stderr]
    const drained = Promise.all(outputs.map((output) => log.drain(output)))
    const stopListening = onAbort(signal, () => killGroup(child))
    this.#add(child)
    try {
      const exitCode = await exitOf(child, file)
      killGroup(child)
      await bounded({ clock, timeoutMs: OUTPUT_END_MS, signal: undefined, run: () => drained })
      return { exitCode, log: log.text() }
    } finally {
      stopListening()
      this.#remove(child)
      for (const output of outputs) output.destroy()
    }
  }

  #add(child: ChildProcess): void {
    if (this.#running.size === 0) process.on('exit', this.#killAll)
    this.#running.add(child)
  }

  #remove(child: ChildProcess): void {
    this.#running.delete(child)
    if (this.#running.size === 0) process.off('exit', this.#killAll)
  }
}

/** The last bytes of outputs. */
class Tail {
  #parts: Buffer[] = []
  #numBytes = 0

  /** Reads an output to its end. */
  drain(output: Readable): Promise<void> {
    output.on('data', (part: Buffer) => this.#add(part))
    return new Promise((resolve) => output.on('close', resolve))
  }

  text(): string {
    return Buffer.concat(this.#parts).subarray(-LOG_BYTES_MAX).toString()
  }

  #add(part: Buffer): void {
    this.#parts.push(part)
    this.#numBytes += part.length
    while (this.#numBytes - (this.#parts[0]?.length ?? 0) >= LOG_BYTES_MAX)
      this.#numBytes -= this.#parts.shift()?.length ?? 0
  }
}

function exitOf(child: ChildProcess, file: string): Promise<number | null> {
  return new Promise((resolve, reject) => {
    child.on('exit', resolve)
    child.on('error', (cause) => {
      const detail = `command must be a program that can be started: got ${file} (${messageOf(cause)})`
      reject(new FulmarError('UNAVAILABLE', detail, { cause }))
    })
  })
}

/** Kills a program and its group; nothing if both have ended. */
function killGroup({ pid }: Pick<ChildProcess, 'pid'>): void {
  if (pid === undefined) return
  try {
    process.kill(HAS_GROUPS ? -pid : pid, 'SIGKILL')
  } catch {
    // Ended already.
  }
}
