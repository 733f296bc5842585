/** The environments of a group: made when their conversation begins, closed whatever happens. */

import type { MessageEnv } from '../env/index.js'
import type { Clock } from '../telemetry/index.js'
import { withDeadline } from './deadline.js'
import type { TokenEnv } from './token-env.js'

/** Environments that are not closed yet. */
export class OpenEnvs {
  readonly #open = new Set<TokenEnv>()
  readonly #clock: Clock
  readonly #timeoutMs: number
  /** How many did not close in time, or threw. */
  numFailures = 0

  constructor(clock: Clock, timeoutMs: number) {
    this.#clock = clock
    this.#timeoutMs = timeoutMs
  }

  add(env: TokenEnv): void {
    this.#open.add(env)
  }

  /** Closes `env`; one that takes too long is not waited for. */
  async close(env: TokenEnv): Promise<void> {
    this.#open.delete(env)
    const run = () => env.close()
    const limits = { clock: this.#clock, timeoutMs: this.#timeoutMs, signal: undefined }
    const { kind } = await withDeadline({ ...limits, run })
    if (kind !== 'value') this.numFailures += 1
  }

  async closeAll(): Promise<void> {
    await Promise.all([...this.#open].map((env) => this.close(env)))
  }
}

/** Makes the environment when its conversation begins, so a failure to make one is a failure of its own rollout. */
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
