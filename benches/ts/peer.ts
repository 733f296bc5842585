/** Another process that answers each line with a line of JSON. */

import { type ChildProcess, spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { ROOT } from './measure.js'

/** The environment of every rival in Python: no downloads, no files left, no additional threads. */
export const PYTHON_ENVIRONMENT = {
  TOKENIZERS_PARALLELISM: 'false',
  HF_HUB_OFFLINE: '1',
  PYTHONDONTWRITEBYTECODE: '1',
  PYTHONPATH: fileURLToPath(new URL('benches/rival/python', ROOT)),
}

/** A peer that says nothing for so long is ended. Its start, with all imports, is the longest wait. */
const ANSWER_TIMEOUT_MS = 300_000

/** Reason that a rival is not run. */
export interface Skipped {
  readonly skipped: string
}

/** A running peer. Dispose it to end the process. */
export class Peer {
  readonly #name: string
  readonly #child: ChildProcess
  readonly #answers: AsyncIterator<string>
  #complaints = ''

  /** Starts `command`; `environment` is added to ours. */
  constructor(
    name: string,
    command: string,
    args: readonly string[],
    environment: Readonly<Record<string, string>> = {},
  ) {
    this.#name = name
    this.#child = spawn(command, args, { env: { ...process.env, ...environment } })
    this.#child.stderr?.setEncoding('utf8').on('data', (text) => {
      this.#complaints = (this.#complaints + text).slice(-4000)
    })
    const { stdout } = this.#child
    if (!stdout) throw new Error(`${name} must have an output`)
    this.#answers = createInterface({ input: stdout })[Symbol.asyncIterator]()
  }

  /** Sends one line and waits for its answer. */
  ask(request: string): Promise<unknown> {
    this.#child.stdin?.write(`${request}\n`)
    return this.answer()
  }

  /** Waits for the next answer. */
  async answer(): Promise<unknown> {
    const late = setTimeout(() => this.#child.kill(), ANSWER_TIMEOUT_MS)
    const { done, value } = await this.#answers.next()
    clearTimeout(late)
    if (done) throw new Error(`${this.#name} must answer: got the end of its output\n${this.#complaints}`)
    return JSON.parse(value)
  }

  [Symbol.dispose](): void {
    this.#child.kill()
  }
}
