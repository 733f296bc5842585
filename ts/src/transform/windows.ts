/** Steps seen with those before and behind them. Time is the last batch dimension. */

import { checkKnownKeys, FulmarError } from '../core/index.js'
import type { TensorDict, TensorKey } from '../tensor/index.js'
import { pathOf } from '../tensor/tensor-dict.js'
import { rawTransform, Transform, type TransformKeys } from './transform.js'

/** Options of {@link CatFrames}. */
export interface CatFramesOptions {
  /** Number of frames, from 1. */
  readonly n: number
  /** The dimension of a frame along which they are joined; negative from the last. */
  readonly dim: number
  /** Frames before the first: a repeat of it, or `paddingValue` everywhere. @default 'same' */
  readonly padding?: 'same' | 'constant'
  /** @default 0 */
  readonly paddingValue?: number
  /** Keys of the tensors. */
  readonly inKeys: TransformKeys
  /** Keys of the results, as many. @default in place */
  readonly outKeys?: TransformKeys
  /** Key of the end of a trajectory. @default ['next', 'done'] */
  readonly doneKey?: TensorKey
}

/**
 * Reads the last `n` frames, the newest last, in the place of each frame, joined along `dim`. A window never reaches into the
 * trajectory before. The frames of a key below `next` are those before it at the root, where `inKeys` has that key too, and
 * then its own.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { CatFrames } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * using stack = new CatFrames({ n: 2, dim: -1, inKeys: 'observation' })
 * const steps = TensorDict.from({ observation: Tensor.from([1, 2, 3], { shape: [3, 1] }) }, { batchSize: [3] })
 *   .set(['next', 'done'], Tensor.from(Uint8Array.of(0, 1, 0), { dtype: 'bool' }))
 * assert.deepEqual(stack.forward(steps).tensor('observation').data, Float32Array.of(1, 1, 1, 2, 3, 3))
 * ```
 */
export class CatFrames extends Transform {
  /**
   * @throws {FulmarError} `OUT_OF_RANGE` if `n` is 0; `SHAPE_MISMATCH` if there are not as many keys out as in. `forward`:
   *   `OUT_OF_RANGE` if a frame has no such dimension; `UNKNOWN_NAME` without frames or ends; `LIMIT_EXCEEDED` if the result
   *   would be too large.
   */
  constructor(options: CatFramesOptions) {
    super(() => rawTransform('CatFrames', options))
  }
}

/** Options of {@link ActionChunkTransform}. */
export interface ActionChunkTransformOptions {
  /** Number of actions, from 1. */
  readonly chunkSize: number
  /** The actions. @default 'action' */
  readonly inKey?: TensorKey
  /** Key of the result. @default ['vla_action', 'chunk'] */
  readonly outKey?: TensorKey
  /** Key of the mask of repeated actions. @default 'action_is_pad' */
  readonly padKey?: TensorKey
  /** Key of the end of a trajectory; `null` if it ends only with the sequence. @default ['next', 'done'] */
  readonly doneKey?: TensorKey | null
}

/**
 * Adds for each action the `chunkSize` actions from it on, `[..., T, chunkSize, A]`. After the end of a trajectory the
 * last action is repeated.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { ActionChunkTransform } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * using chunks = new ActionChunkTransform({ chunkSize: 2, doneKey: null })
 * const steps = TensorDict.from({ action: Tensor.from([1, 2, 3], { shape: [3, 1] }) }, { batchSize: [3] })
 * const chunked = chunks.forward(steps)
 * assert.deepEqual(chunked.tensor(['vla_action', 'chunk']).data, Float32Array.of(1, 2, 2, 3, 3, 3))
 * assert.deepEqual(chunked.tensor('action_is_pad').data, Uint8Array.of(0, 0, 0, 0, 0, 1))
 * ```
 */
export class ActionChunkTransform extends Transform {
  /**
   * @throws {FulmarError} `OUT_OF_RANGE` if `chunkSize` is 0. `forward`: `UNKNOWN_NAME` without actions or ends;
   *   `LIMIT_EXCEEDED` if the result would be too large.
   */
  constructor(options: ActionChunkTransformOptions) {
    super(() => rawTransform('ActionChunkTransform', options))
  }
}

/** Options of {@link RandomCropTensorDict}. */
export interface RandomCropTensorDictOptions {
  /** Number of steps, from 1. */
  readonly subSeqLen: number
  /** The batch dimension that is cropped; negative from the last. @default -1 */
  readonly sampleDim?: number
  /** Bools that are true at the first steps of each sequence, those that count. @default all count */
  readonly maskKey?: TensorKey
  /** Fixes all draws. @default 0 */
  readonly seed?: number
}

/**
 * Reads `subSeqLen` consecutive steps of every sequence of a batch. The start is drawn uniformly for each sequence, among
 * those followed by enough steps. Its state is the position in its random numbers.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { RandomCropTensorDict } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * using crop = new RandomCropTensorDict({ subSeqLen: 2, seed: 7 })
 * const steps = TensorDict.from({ id: Tensor.from([0, 1, 2, 3]) }, { batchSize: [4] })
 * const [first, second] = crop.forward(steps).tensor('id').data
 * assert.equal(Number(second), Number(first) + 1)
 * ```
 */
export class RandomCropTensorDict extends Transform {
  /**
   * @throws {FulmarError} `OUT_OF_RANGE` if `subSeqLen` is 0. `forward`: `OUT_OF_RANGE` if a sequence is shorter, or there is no
   *   such batch dimension.
   */
  constructor(options: RandomCropTensorDictOptions) {
    super(() => rawTransform('RandomCropTensorDict', options))
  }
}

/** Options of {@link NextStateReconstructor}. */
export interface NextStateReconstructorOptions {
  /** Keys that are copied to below `next`. @default ['observation'] */
  readonly keys?: TransformKeys
  /** Key of trajectory ids, integers; `null` without ids. @default ['collector', 'traj_ids'] */
  readonly trajKey?: TensorKey | null
  /** Key of the end of a trajectory; `null` without one. @default ['next', 'done'] */
  readonly doneKey?: TensorKey | null
  /** Integers that grow by 1 from a step to the one that follows it. @default none */
  readonly stepCountKey?: TensorKey
  /** Value without a following row; required for integers. @default NaN */
  readonly fillValue?: number
  /** If true, `trajKey` and `doneKey` must exist. @default true */
  readonly strict?: boolean
}

/**
 * Fills `next` of a flat sample of slices from the following row, so that a buffer need not store every observation twice. The
 * last row of a trajectory, and of the sample, has no following one and gets `fillValue`.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { NextStateReconstructor } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * using reconstruct = new NextStateReconstructor({ doneKey: null, fillValue: -1 })
 * const sample = TensorDict.from({ observation: Tensor.from([1, 2, 3]) }, { batchSize: [3] })
 *   .set(['collector', 'traj_ids'], Tensor.from(Int32Array.of(0, 0, 1)))
 * const filled = reconstruct.forward(sample)
 * assert.deepEqual(filled.tensor(['next', 'observation']).data, Float32Array.of(2, -1, -1))
 * ```
 */
export class NextStateReconstructor extends Transform {
  /**
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option. `forward`: `SHAPE_MISMATCH` unless there is one batch dimension;
   *   `UNKNOWN_NAME` if a key is missing; `OUT_OF_RANGE` if a dtype has no such `fillValue`.
   */
  constructor(options: NextStateReconstructorOptions = {}) {
    // JSON has no NaN: it is written as null.
    const told = Number.isNaN(options?.fillValue) ? { ...options, fillValue: null } : options
    super(() => rawTransform('NextStateReconstructor', told))
  }
}

/** Options of {@link BurnInTransform}. */
export interface BurnInTransformOptions {
  /** Adds to steps the states at `outKeys`, below `next`, that each step leaves. */
  readonly module: (steps: TensorDict) => TensorDict
  /** Number of burn-in steps, from 0. */
  readonly burnIn: number
  /** The states. */
  readonly outKeys: TransformKeys
}

/**
 * Runs a recurrent model over the first `burnIn` steps of every sequence that is read, and returns the others, which begin in
 * the states that it left. Nothing else of those states is filled.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { BurnInTransform } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * const double = (steps: TensorDict) => {
 *   const doubled = steps.tensor('h').as('f32').data.map((h) => 2 * h)
 *   return steps.set(['next', 'h'], Tensor.from(doubled))
 * }
 * const warm = new BurnInTransform({ module: double, burnIn: 2, outKeys: 'h' })
 * const steps = TensorDict.from({ h: Tensor.from([1, 2, 0, 0]) }, { batchSize: [4] })
 * assert.deepEqual(warm.forward(steps).tensor('h').data, Float32Array.of(4, 0))
 * ```
 */
export class BurnInTransform {
  readonly #module: (steps: TensorDict) => TensorDict
  readonly #burnIn: number
  readonly #outKeys: readonly TensorKey[]

  /** @throws {FulmarError} `OUT_OF_RANGE` if `burnIn` is not an integer from 0; `UNKNOWN_NAME` for an unknown option. */
  constructor(options: BurnInTransformOptions) {
    checkKnownKeys('options', options, ['module', 'burnIn', 'outKeys'])
    const { module, burnIn, outKeys } = options
    if (!Number.isSafeInteger(burnIn) || burnIn < 0) {
      throw new FulmarError('OUT_OF_RANGE', `burnIn must be an integer >= 0: got ${burnIn}`)
    }
    this.#module = module
    this.#burnIn = burnIn
    this.#outKeys = typeof outKeys === 'string' ? [outKeys] : outKeys.map(pathOf)
    this.forward = this.forward.bind(this)
  }

  /**
   * The steps behind the first `burnIn`. What came in stays as it was.
   * @throws {FulmarError} `OUT_OF_RANGE` unless there are more than `burnIn` steps; `UNKNOWN_NAME` if a state is missing;
   *   `SHAPE_MISMATCH` or `INCOMPATIBLE` if it is not a state of a step; what the model throws.
   */
  forward(batch: TensorDict): TensorDict {
    const time = batch.batchSize.length - 1
    const length = batch.batchSize[time] ?? 0
    if (this.#burnIn === 0) return batch
    if (this.#burnIn >= length) {
      const detail = `burnIn must be less than ${length}, the number of steps: got ${this.#burnIn}`
      throw new FulmarError('OUT_OF_RANGE', detail)
    }
    const first = this.#module(batch.at('...', { stop: this.#burnIn }))
    const states = first.dict('next').select(this.#outKeys).at('...', -1)
    return batch.at('...', { start: this.#burnIn }).setAt(['...', 0], states)
  }
}
