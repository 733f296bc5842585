/** Environments of a group: created at the start of their conversation, and always closed. */

import { type BoundedResult, bounded } from '../async/index.js'
import type { Message } from '../chat/index.js'
import type { EnvContext, MessageEnv } from '../env/index.js'
import type { Clock } from '../telemetry/index.js'
import { type OwnRolloutEnv, runsItself } from './own-rollout.js'

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
export class LazyEnv implements MessageEnv {
  readonly #make: () => MessageEnv
  #made: { readonly env: MessageEnv } | { readonly error: unknown } | undefined

  constructor(make: () => MessageEnv) {
    this.#make = make
  }

  /** Returns the environment if it runs its rollout itself; `undefined` for another one, also for one that cannot be created. */
  own(): OwnRolloutEnv | undefined {
    try {
      const env = this.#open()
      return runsItself(env) ? env : undefined
    } catch {
      // Its conversation begins with the same failure, and records it.
      return undefined
    }
  }

  init(context: EnvContext): ReturnType<MessageEnv['init']> {
    return this.#open().init(context)
  }

  step(message: Message, context: EnvContext): ReturnType<MessageEnv['step']> {
    return this.#open().step(message, context)
  }

  close(): ReturnType<MessageEnv['close']> {
    return this.#made && 'env' in this.#made ? this.#made.env.close() : undefined
  }

  #open(): MessageEnv {
    this.#made ??= outcomeOf(this.#make)
    if ('error' in this.#made) throw this.#made.error
    return this.#made.env
  }
}

function outcomeOf(make: () => MessageEnv): { readonly env: MessageEnv } | { readonly error: unknown } {
  try {
    return { env: make() }
  } catch (error) {
    return { error }
  }
}
