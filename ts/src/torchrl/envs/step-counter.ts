/** Counts the steps of an episode, and truncates it at a limit. */

import { checkKnownKeys, FulmarError } from '../../core/index.js'
import { Binary, Unbounded } from '../../spec/index.js'
import { Tensor, type TensorDict, type TensorKey } from '../../tensor/index.js'
import type { ChatTurnTransform } from './chat-turn.js'
import type { EnvSpecs } from './env.js'
import { flags, raise } from './flag.js'
import { changedSpecs, type EnvTransform, type EnvView } from './transformed-env.js'

/** Options of {@link StepCounter}. */
export interface StepCounterOptions {
  /** After so many steps an episode is truncated. @default no limit */
  readonly maxSteps?: number
  /** @default 'truncated' */
  readonly truncatedKey?: TensorKey
  /** Key of the count, `i64`. @default 'step_count' */
  readonly stepCountKey?: TensorKey
  /** If true, truncated episodes are done, too. @default true */
  readonly updateDone?: boolean
}

/**
 * TorchRL's counter: 0 at a reset, one more with each step, and truncated once `maxSteps` were taken.
 *
 * @example
 * ```ts
 * import { NonTensorData, TensorDict } from 'fulmar/tensor'
 * import { ChatEnv, replyPolicy, StepCounter, TransformedEnv } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const env = new TransformedEnv(new ChatEnv(), [new StepCounter({ maxSteps: 1 })])
 * const dict = await env.reset(TensorDict.from({ query: new NonTensorData('Hi') }, { batchSize: [1] }))
 * const next = await env.step(await replyPolicy({ inputMode: 'history', reply: () => 'Yo' })(dict))
 * assert.deepEqual([next.tensor('step_count').data[0], next.tensor('done').data[0]], [1n, 1])
 * ```
 */
export class StepCounter implements EnvTransform {
  readonly #maxSteps: number
  readonly #truncatedKey: TensorKey
  readonly #stepCountKey: TensorKey
  readonly #updateDone: boolean

  /** @throws {FulmarError} `OUT_OF_RANGE` if `maxSteps` is no positive integer; `UNKNOWN_NAME` for an unknown option. */
  constructor(options: StepCounterOptions = {}) {
    checkKnownKeys('options', options, ['maxSteps', 'truncatedKey', 'stepCountKey', 'updateDone'])
    const { maxSteps, truncatedKey = 'truncated', stepCountKey = 'step_count', updateDone = true } = options
    if (maxSteps !== undefined && !(Number.isSafeInteger(maxSteps) && maxSteps >= 1)) {
      throw new FulmarError('OUT_OF_RANGE', `maxSteps must be a positive integer: got ${maxSteps}`)
    }
    this.#maxSteps = maxSteps ?? Number.POSITIVE_INFINITY
    this.#truncatedKey = truncatedKey
    this.#stepCountKey = stepCountKey
    this.#updateDone = updateDone
  }

  afterReset(dict: TensorDict): TensorDict {
    const shape = [...dict.batchSize, 1]
    if (!dict.has(this.#truncatedKey)) dict.set(this.#truncatedKey, flags(dict.batchSize))
    return dict.set(this.#stepCountKey, Tensor.zeros('i64', shape))
  }

  afterStep(next: TensorDict, root: TensorDict): TensorDict {
    const shape = [...next.batchSize, 1]
    const counts = BigInt64Array.from(root.tensor(this.#stepCountKey).as('i64').data, (count) => count + 1n)
    const isOver = Array.from(counts, (count) => Number(count) >= this.#maxSteps)
    raise(next, this.#truncatedKey, isOver)
    if (this.#updateDone) raise(next, 'done', isOver)
    return next.set(this.#stepCountKey, Tensor.from(counts, { shape }))
  }

  chatTurns(first: TensorDict): ChatTurnTransform {
    let count = Number(first.tensor(this.#stepCountKey).data[0] ?? 0)
    return (turn) => {
      count += 1
      if (count >= this.#maxSteps && (this.#updateDone || this.#truncatedKey === 'done')) turn.done = true
    }
  }

  transformSpecs(env: EnvView): EnvSpecs {
    return changedSpecs(env, ({ observationSpec, doneSpec }) => {
      const shape = [...observationSpec.shape, 1]
      observationSpec.set(this.#stepCountKey, new Unbounded({ shape, dtype: 'i64' }))
      doneSpec.set(this.#truncatedKey, new Binary(1, { shape, dtype: 'bool' }))
    })
  }
}
