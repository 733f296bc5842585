/** Options of buffers, and what batches and figures of theirs hold. */

import type { TensorDict } from '../tensor/tensor-dict.js'
import type { BufferTransform } from './buffer-transform.js'
import type { ReplayBuffer } from './replay-buffer.js'
import type { SampleUnit } from './sample-unit.js'
import type { Sampler } from './sampler.js'
import type { Storage } from './storage.js'
import type { Writer } from './writer.js'

/** Options of {@link ReplayBuffer}. */
export interface ReplayBufferOptions {
  /** Storage of the items. @default `new ListStorage(1000)` */
  readonly storage?: Storage
  /** Sampler of the rows of a batch, for this buffer alone. @default `new RandomSampler()` */
  readonly sampler?: Sampler
  /** Writer that places new items. @default a ring */
  readonly writer?: Writer
  /** Unit that a drawn row expands to. @default the row itself */
  readonly sampleUnit?: SampleUnit
  /** Rows of a batch where none are asked for, from 1. @default none */
  readonly batchSize?: number
  /**
   * Number of batches that {@link ReplayBuffer.batches} draws in advance, up to 1024; needs `batchSize`.
   * @default 0
   */
  readonly prefetch?: number
  /** Fixes all draws. @default 0 */
  readonly seed?: number
  /**
   * Transforms of items and batches; `inverse` in reverse order on write, `forward` in order on read.
   * @default none
   */
  readonly transforms?: readonly BufferTransform[]
  /** If true, one write may hold more items than the buffer, of which the last stay. @default true */
  readonly allowOverwrite?: boolean
}

/** A batch and where it comes from. */
export interface ReplayBatch {
  /** The items. */
  readonly items: TensorDict
  /** Their rows, counted through time, then lanes. */
  readonly index: readonly number[]
  /** Information of sampler and unit about the rows: weights, masks, staleness, `index_generation`. */
  readonly info: TensorDict
}

/** Figures of a buffer. */
export interface ReplayBufferStats {
  /** Rows that hold an item. */
  readonly size: number
  /** Rows there is room for. */
  readonly capacity: number
  /** Items, or time steps where there are lanes, ever written. */
  readonly writeCount: number
  /** `size / capacity`. */
  readonly utilization: number
  /** Batches that are drawn and were not asked for yet. */
  readonly prefetchQueueSize: number
}

/** The keys of {@link ReplayBufferOptions}. */
export const REPLAY_BUFFER_KEYS = [
  'storage',
  'sampler',
  'writer',
  'sampleUnit',
  'batchSize',
  'prefetch',
  'seed',
  'transforms',
  'allowOverwrite',
] as const

/** Functions of the core that only some classes of buffers use. */
export interface BufferKind {
  readonly writeInfo: boolean
  readonly priorityKey?: readonly string[]
  readonly reduction?: string
}
