/** Environments of a group: created at the start of their conversation, and always closed. */

import { type BoundedResult, bounded } from '../async/index.js'
import type { MessageEnv } from '../env/index.js'
import type { Clock } from '../telemetry/index.js'

/** Environments that are not closed yet. */
export class OpenEnvs {
  readonly #open = new Set<MessageEnv>()
  readonly #clock: Clock
  readonly #timeoutMs: number
  /** Number of environments that did not close in time, or threw. */
  numFailures = 0

  constructor(clock: Clock, timeoutMs: number) {
    this.#clock = clock
    this.#timeoutMs = timeoutMs
  }

  add(env: MessageEnv): void {
    this.#open.add(env)
  }

  /** Closes `env`, up to the deadline. */
  async close(env: MessageEnv): Promise<void> {
    await this.#close(env)
  }

  async closeAll(): Promise<void> {
    await Promise.all([...this.#open].map((env) => this.#close(env)))
  }

  #close(env: MessageEnv): void | Promise<void> {
    this.#open.delete(env)
    const run = () => env.close()
    const result = bounded({ clock: this.#clock, timeoutMs: this.#timeoutMs, signal: undefined, run })
    if (result instanceof Promise) return result.then((later) => this.#count(later))
    this.#count(result)
  }

  #count({ kind }: BoundedResult<void>): void {
    if (kind !== 'value') this.numFailures += 1
  }
}

/** Creates the environment at the start of its conversation, so that a failure belongs to its own rollout. */
export function lazyEnv(make: () => MessageEnv): MessageEnv {
  let env: MessageEnv | undefined
  return {
    init: (context) => {
      env = make()
      return env.init(context)
    },
    step: (message, context) => (env ?? make()).step(message, context),
    close: () => env?.close(),
  }
}
