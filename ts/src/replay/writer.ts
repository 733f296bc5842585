/** Writers: the choice of the rows of new items. */

import { checkKnownKeys } from '../core/index.js'
import type { RawMailbox } from '../native/index.js'
import type { Json, TensorKey } from '../tensor/index.js'
import { indices } from '../tensor/tensor.js'
import { dictAround, pathOf, type TensorDict } from '../tensor/tensor-dict.js'
import type { Answers } from './sampler.js'

/** A writer of your own: what {@link Writer.from} makes one of. */
export interface WriterSource {
  /**
   * The row that each of `items` would take, below `maxSize` and without a gap before it, -1 for one that is not kept. Changes nothing: what
   * is refused afterwards is not written. `freed` rows, the first of them first, are there to be used again.
   */
  plan(items: TensorDict, maxSize: number, freed: readonly number[]): readonly number[]
  /** Takes note that what was planned last is written. @default nothing */
  commit?(rows: readonly number[]): void
  /** Forgets all rows. */
  clear(): void
  /** All that must be kept to plan the same rows again. @default null */
  state?(): Json
  /** Restores a state. @default nothing */
  restore?(state: Json): void
}

let describe: (writer: Writer) => object

/**
 * Chooses the rows of new items: give one of its classes to a {@link ReplayBuffer}.
 *
 * @example
 * ```ts
 * import { RoundRobinWriter, TensorDictMaxValueWriter, Writer } from 'fulmar/replay'
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

  /**
   * A writer that your object keeps; only the thread that made it may use it. While one of its functions is called, the buffer refuses it
   * with `FORBIDDEN`. What your object throws, and rows that cannot be, become `USER_CODE`.
   *
   * @example
   * ```ts
   * import { Tensor, TensorDict } from 'fulmar'
   * import { LazyTensorStorage, ReplayBuffer, Writer } from 'fulmar/replay'
   * import assert from 'node:assert/strict'
   *
   * let next = 0 // keeps every other item, as a ring
   * const writer = Writer.from({
   *   plan: (items, maxSize) =>
   *     Array.from({ length: items.batchSize[0] ?? 0 }, (_, at) => (at % 2 ? -1 : (next + at / 2) % maxSize)),
   *   commit: (rows) => {
   *     next += rows.filter((row) => row >= 0).length
   *   },
   *   clear: () => {
   *     next = 0
   *   },
   * })
   * const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(2), writer })
   * assert.deepEqual(buffer.extend(TensorDict.from({ id: Tensor.from([1, 2, 3]) }, { batchSize: [3] })), [0, -1, 1])
   * ```
   */
  static from(source: WriterSource): Writer {
    return new SourceWriter(source)
  }
}

/** A writer behind the functions of the caller. */
class SourceWriter extends Writer {
  readonly source: WriterSource

  constructor(source: WriterSource) {
    super({ kind: 'roundRobin' })
    this.source = source
  }
}

/** Functions that the core calls for a writer in JavaScript; `undefined` for one of the core. */
export function writerAnswers(writer: Writer | undefined, mailbox: RawMailbox): Answers | undefined {
  if (!(writer instanceof SourceWriter)) return undefined
  const { source } = writer
  return {
    'writer.plan': ([maxSize = 0, ...freed]) => {
      const items = mailbox.takeItems()
      if (!items) return
      const rows = source.plan(
        dictAround(() => items),
        maxSize,
        freed,
      )
      mailbox.putNumbers(indices(rows))
    },
    'writer.commit': (rows) => source.commit?.(rows),
    'writer.clear': () => source.clear(),
    'writer.state': () => mailbox.putText(JSON.stringify(source.state?.() ?? null)),
    'writer.restore': () => source.restore?.(JSON.parse(mailbox.takeText() ?? 'null') as Json),
  }
}

/** Returns the description from which the core builds the writer. */
export const writerOptions = (writer: Writer): object => describe(writer)

/** Options of {@link RoundRobinWriter}. */
export interface RoundRobinWriterOptions {
  /** If true, counts the writes of each row, for `updateIfPresent`. @default false */
  readonly trackGenerations?: boolean
}

/**
 * A ring: the oldest items are written over.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { LazyTensorStorage, ReplayBuffer, RoundRobinWriter } from 'fulmar/replay'
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
    checkKnownKeys('options', options, ['trackGenerations'])
    super({ kind: 'roundRobin', ...options })
  }
}

/** TorchRL's name for a ring whose buffer writes rows at `index`, as {@link TensorDictReplayBuffer} does with any writer. */
export const TensorDictRoundRobinWriter = RoundRobinWriter

/** Options of {@link TensorDictMaxValueWriter}. */
export interface MaxValueWriterOptions {
  /** Key of the rank of an item. @default ['next', 'reward'] */
  readonly rankKey?: TensorKey
  /** Reduction of the values there to one rank. @default 'sum' */
  readonly reduction?: 'sum' | 'max' | 'min' | 'mean' | 'median'
}

/**
 * Keeps the items of the highest ranks; the row of one that is not kept is -1.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { LazyTensorStorage, ReplayBuffer, TensorDictMaxValueWriter } from 'fulmar/replay'
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
 * import { Tensor, TensorDict } from 'fulmar'
 * import { ImmutableDatasetWriter, ReplayBuffer, TensorStorage } from 'fulmar/replay'
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
