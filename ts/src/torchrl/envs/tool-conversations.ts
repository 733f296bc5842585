/** Conversations of a batch, for tools that keep state for each of them. */

import { Unbounded } from '../../spec/index.js'
import { Tensor, type TensorDict } from '../../tensor/index.js'
import { sizeOf } from '../data/batch.js'
import type { EnvSpecs } from './env.js'
import { changedSpecs, type EnvView } from './transformed-env.js'

/** Entry with the number of each conversation, `i64 [...batch]`. */
const KEY = 'conversation'

/**
 * Numbers conversations at resets, and ends them: those that are done, those that a reset replaces, and all with
 * `close`. At most as many are under way as the batch has elements: a reset beyond ends the oldest. An environment
 * within that has such numbers is followed.
 */
export class ToolConversations {
  readonly #ends = new Map<bigint, AbortController>()
  #numBegun = 0n

  /** Numbers the conversations of a reset. */
  begin(first: TensorDict, env: EnvView): TensorDict {
    const isNumbered = env.stateSpec.has(KEY) && first.has(KEY)
    const count = sizeOf(first.batchSize)
    const ids = isNumbered ? idsAt(first) : Array.from({ length: count }, () => this.#numBegun++)
    for (const id of ids) this.#ends.set(id, new AbortController())
    for (const id of this.#ends.keys()) {
      if (this.#ends.size <= Math.max(sizeOf(env.batchSize), count)) break
      this.end(id)
    }
    if (isNumbered) return first
    return first.set(KEY, Tensor.from(BigInt64Array.from(ids), { shape: first.batchSize }))
  }

  /** The numbers of the conversations of a dictionary; `undefined` without such an entry. */
  idsOf(dict: TensorDict): readonly bigint[] | undefined {
    return dict.has(KEY) ? idsAt(dict) : undefined
  }

  /** The signal of a conversation; one that has fired for a conversation that is not under way. */
  signalOf(id: bigint): AbortSignal {
    return this.#ends.get(id)?.signal ?? AbortSignal.abort()
  }

  /** Takes the conversation out of the batch: what is returned ends it. */
  take(first: TensorDict): AbortController {
    const id = this.idsOf(first)?.[0]
    const end = (id === undefined ? undefined : this.#ends.get(id)) ?? new AbortController()
    if (id !== undefined) this.#ends.delete(id)
    return end
  }

  end(id: bigint): void {
    this.#ends.get(id)?.abort()
    this.#ends.delete(id)
  }

  /** Ends all, and numbers from 0 again. */
  restart(): void {
    this.close()
    this.#numBegun = 0n
  }

  close(): void {
    for (const id of [...this.#ends.keys()]) this.end(id)
  }

  /** The specs with the numbers. */
  specs(env: EnvView): EnvSpecs {
    if (env.stateSpec.has(KEY)) return env
    return changedSpecs(env, ({ stateSpec }) => {
      stateSpec.set(KEY, new Unbounded({ shape: env.batchSize, dtype: 'i64' }))
    })
  }
}

function idsAt(dict: TensorDict): readonly bigint[] {
  return Array.from(dict.tensor(KEY).as('i64').data)
}
