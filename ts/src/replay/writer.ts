/** Which rows new items take. */

import { checkKnownKeys } from '../core/index.js'
import type { TensorKey } from '../tensor/index.js'
import { pathOf } from '../tensor/tensor-dict.js'

let describe: (writer: Writer) => object

/**
 * Chooses the rows of new items: give one of its classes to a {@link ReplayBuffer}.
 *
 * @example
 * ```ts
 * import { RoundRobinWriter, TensorDictMaxValueWriter, Writer } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * assert.ok(new RoundRobinWriter() instanceof Writer && new TensorDictMaxValueWriter() instanceof Writer)
 * ```
 */
export abstract class Writer {
  readonly #options: object

  /** @internal */
  protected constructor(options: object) {
    this.#options = options
  }

  static {
    describe = (writer) => writer.#options
  }
}

/** What the core builds the writer from. */
export const writerOptions = (writer: Writer): object => describe(writer)

/** Options of {@link RoundRobinWriter}. */
export interface RoundRobinWriterOptions {
  /** Whether rows count how often they are written, which `updateIfPresent` needs. @default false */
  readonly trackGenerations?: boolean
}

/**
 * A ring: the oldest items are written over.
 *
 * @example
 * ```ts
 * import { LazyTensorStorage, ReplayBuffer, RoundRobinWriter, Tensor, TensorDict } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const writer = new RoundRobinWriter({ trackGenerations: true })
 * const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(2), writer })
 * const items = TensorDict.from({ id: Tensor.from([1, 2, 3]) }, { batchSize: [3] })
 * assert.deepEqual(buffer.extend(items), [0, 1, 0])
 * assert.deepEqual(buffer.generationsOf([0, 1]), [1, 0])
 * ```
 */
export class RoundRobinWriter extends Writer {
  constructor(options: RoundRobinWriterOptions = {}) {
    super({ kind: 'roundRobin', ...options })
  }
}

/** TorchRL's name for a ring whose buffer writes rows at `index`, as {@link TensorDictReplayBuffer} does with any writer. */
export const TensorDictRoundRobinWriter = RoundRobinWriter

/** Options of {@link TensorDictMaxValueWriter}. */
export interface MaxValueWriterOptions {
  /** Where the rank of an item is. @default ['next', 'reward'] */
  readonly rankKey?: TensorKey
  /** How the values there become one rank. @default 'sum' */
  readonly reduction?: 'sum' | 'max' | 'min' | 'mean' | 'median'
}

/**
 * Keeps the items of the highest ranks; the row of one that is not kept is -1.
 *
 * @example
 * ```ts
 * import { LazyTensorStorage, ReplayBuffer, Tensor, TensorDict, TensorDictMaxValueWriter } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const writer = new TensorDictMaxValueWriter({ rankKey: 'score' })
 * const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(1), writer })
 * const items = TensorDict.from({ score: Tensor.from([1, 3, 2]) }, { batchSize: [3] })
 * assert.deepEqual(buffer.extend(items), [-1, 0, -1])
 * ```
 */
export class TensorDictMaxValueWriter extends Writer {
  constructor(options: MaxValueWriterOptions = {}) {
    checkKnownKeys('options', options, ['rankKey', 'reduction'])
    const { rankKey, ...rest } = options
    super({ kind: 'maxValue', ...rest, ...(rankKey !== undefined && { rankKey: pathOf(rankKey) }) })
  }
}

/**
 * Refuses every write.
 *
 * @example
 * ```ts
 * import { ImmutableDatasetWriter, ReplayBuffer, Tensor, TensorDict, TensorStorage } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const items = TensorDict.from({ id: Tensor.from([1, 2]) }, { batchSize: [2] })
 * const buffer = new ReplayBuffer({ storage: new TensorStorage(items), writer: new ImmutableDatasetWriter() })
 * assert.throws(() => buffer.extend(items), { code: 'INCOMPATIBLE' })
 * ```
 */
export class ImmutableDatasetWriter extends Writer {
  constructor() {
    super({ kind: 'immutable' })
  }
}
