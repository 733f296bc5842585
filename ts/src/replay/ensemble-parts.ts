/** The parts of an ensemble: a storage, a sampler and a writer for each of its buffers. */

import { checkGiven, checkKnownKeys, FulmarError } from '../core/index.js'
import type { TensorDict } from '../tensor/index.js'
import { ReplayBuffer } from './replay-buffer.js'
import { RandomSampler, type Sampler } from './sampler.js'
import type { Storage } from './storage.js'
import { RoundRobinWriter, type Writer } from './writer.js'

/**
 * The storages of an ensemble's buffers, by their number. Written through the buffers alone.
 * @throws {FulmarError} `EMPTY` without storages.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { ListStorage, StorageEnsemble } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const [one, other] = [new ListStorage(4), new ListStorage(4)]
 * other.set([0], TensorDict.from({ id: Tensor.from([7]) }, { batchSize: [1] }))
 * const [part] = new StorageEnsemble([one, other]).get([{ buffer: 1, rows: [0, 0] }])
 * assert.deepEqual(part.items.tensor('id').data, Float32Array.of(7, 7))
 * ```
 */
export class StorageEnsemble {
  /** The storages. */
  readonly storages: readonly Storage[]

  constructor(storages: readonly Storage[]) {
    checkGiven('storages', storages)
    if (storages.length === 0)
      throw new FulmarError('EMPTY', 'an ensemble must have a storage: there is none')
    this.storages = [...storages]
  }

  /** Number of storages. */
  get length(): number {
    return this.storages.length
  }

  /** The items in rows of storages, a part for each. @throws {FulmarError} `OUT_OF_RANGE` if there is no such storage, or a row holds no item. */
  get(
    parts: Iterable<{ readonly buffer: number; readonly rows: Iterable<number> }>,
  ): { readonly buffer: number; readonly items: TensorDict }[] {
    return Array.from(parts, ({ buffer, rows }) => {
      const storage = this.storages[buffer]
      if (storage) return { buffer, items: storage.get(rows) }
      throw new FulmarError('OUT_OF_RANGE', `buffer must be in 0..${this.length}: got ${buffer}`)
    })
  }
}

/** Choice of the buffers of a batch of an ensemble. */
export interface SamplerEnsembleOptions {
  /** Relative probability of each buffer. @default uniform */
  readonly p?: readonly number[]
  /** If true, a batch takes from every buffer, in order. @default false */
  readonly sampleFromAll?: boolean
  /** Number of buffers of a batch, drawn with replacement. @default all */
  readonly numBufferSampled?: number
}

/**
 * Samplers of an ensemble's buffers, and the choice of the buffers of a batch.
 * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option; the ensemble checks probabilities.
 *
 * @example
 * ```ts
 * import { RandomSampler, SamplerEnsemble, SamplerWithoutReplacement } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const samplers = new SamplerEnsemble([new RandomSampler(), new SamplerWithoutReplacement()], { p: [0.9, 0.1] })
 * assert.equal(samplers.length, 2)
 * ```
 */
export class SamplerEnsemble {
  /** The samplers. */
  readonly samplers: readonly Sampler[]
  /** Choice of the buffers. */
  readonly options: SamplerEnsembleOptions

  constructor(samplers: readonly Sampler[], options: SamplerEnsembleOptions = {}) {
    checkKnownKeys('options', options, ['p', 'sampleFromAll', 'numBufferSampled'])
    checkGiven('samplers', samplers)
    this.samplers = [...samplers]
    this.options = { ...options }
  }

  /** Number of samplers. */
  get length(): number {
    return this.samplers.length
  }
}

/**
 * The writers of an ensemble's buffers. It writes nothing itself: items go to one of the buffers, by the ensemble's routing or
 * through the buffer.
 *
 * @example
 * ```ts
 * import { ImmutableDatasetWriter, RoundRobinWriter, WriterEnsemble } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(new WriterEnsemble([new ImmutableDatasetWriter(), new RoundRobinWriter()]).length, 2)
 * ```
 */
export class WriterEnsemble {
  /** The writers. */
  readonly writers: readonly Writer[]

  constructor(writers: readonly Writer[]) {
    checkGiven('writers', writers)
    this.writers = [...writers]
  }

  /** Number of writers. */
  get length(): number {
    return this.writers.length
  }
}

/** Parts of the buffers of an ensemble. */
export interface EnsembleParts {
  /** Storages of the items. */
  readonly storages: StorageEnsemble
  /** Samplers of all buffers, and the choice among them. @default random rows, all buffers equally likely */
  readonly samplers?: SamplerEnsemble
  /** Writers of all buffers. @default rings */
  readonly writers?: WriterEnsemble
}

/**
 * The buffers that have these parts, and which of them a batch takes; buffer `i` draws by the seed `seed + i`.
 * @throws {FulmarError} `SHAPE_MISMATCH` unless there is a sampler and a writer for each storage.
 */
export function buffersOf(
  parts: EnsembleParts,
  seed: number,
): { buffers: ReplayBuffer[]; drawn: SamplerEnsembleOptions } {
  checkKnownKeys('parts', parts, ['storages', 'samplers', 'writers'])
  const { storages } = parts
  const samplers = parts.samplers ?? new SamplerEnsemble(storages.storages.map(() => new RandomSampler()))
  const writers = parts.writers ?? new WriterEnsemble(storages.storages.map(() => new RoundRobinWriter()))
  for (const [name, { length }] of Object.entries({ samplers, writers })) {
    if (length === storages.length) continue
    throw new FulmarError(
      'SHAPE_MISMATCH',
      `${name} must be one a storage, ${storages.length}: got ${length}`,
    )
  }
  const buffers = storages.storages.map((storage, at) => {
    const [sampler, writer] = [samplers.samplers[at], writers.writers[at]]
    return new ReplayBuffer({
      storage,
      seed: seed + at,
      ...(sampler && { sampler }),
      ...(writer && { writer }),
    })
  })
  return { buffers, drawn: samplers.options }
}
