/** Some of the entries, or all under other names. */

import { rawTransform, Transform, type TransformKeys } from './transform.js'

/** Options of {@link RenameTransform}. */
export interface RenameTransformOptions {
  /** Keys that are renamed on read. @default [] */
  readonly inKeys?: TransformKeys
  /** The names it gets, as many. @default [] */
  readonly outKeys?: TransformKeys
  /** The names that items are stored under. @default [] */
  readonly inKeysInv?: TransformKeys
  /** Keys that are renamed to them on write, as many; missing ones are skipped. @default [] */
  readonly outKeysInv?: TransformKeys
  /** If true, keeps the old names, too. @default false */
  readonly createCopy?: boolean
}

/**
 * Renames entries of batches that are read, and others of items that are written.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { RenameTransform } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * using rename = new RenameTransform({ inKeys: 'a', outKeys: [['next', 'z']] })
 * const batch = TensorDict.from({ a: Tensor.from([7]) }, { batchSize: [1] })
 * assert.deepEqual(rename.forward(batch).nestedKeys(), [['next', 'z'], ['next']])
 * assert.deepEqual(batch.keys(), ['a'])
 * ```
 */
export class RenameTransform extends Transform {
  /**
   * @throws {FulmarError} `SHAPE_MISMATCH` if there are more names of one side than of the other; `INCOMPATIBLE` if a name is
   *   on both; `UNKNOWN_NAME` for an unknown option. `forward`: `UNKNOWN_NAME` if an entry is missing.
   */
  constructor(options: RenameTransformOptions) {
    super(() => rawTransform('RenameTransform', options))
  }
}

/** Options of {@link SelectTransform}. */
export interface SelectTransformOptions {
  /** Keys to keep. */
  readonly keys: TransformKeys
  /** If true, keeps `reward` as well, at the root and below `next`. @default true */
  readonly keepRewards?: boolean
  /**
   * If true, keeps `done`, `terminated` and `truncated` as well, at the root and below `next`.
   * @default true
   */
  readonly keepDones?: boolean
}

/**
 * Reads only the entries at some keys; keys without an entry are passed over.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { SelectTransform } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * using select = new SelectTransform({ keys: 'observation' })
 * const batch = TensorDict.from({ observation: Tensor.from([1]), info: Tensor.from([2]) })
 *   .set(['next', 'reward'], Tensor.from([3]))
 * assert.deepEqual(select.forward(batch).leafKeys(), [['observation'], ['next', 'reward']])
 * ```
 */
export class SelectTransform extends Transform {
  /** @throws {FulmarError} `UNKNOWN_NAME` for an unknown option; `MALFORMED` without `keys`. */
  constructor(options: SelectTransformOptions) {
    super(() => rawTransform('SelectTransform', options))
  }
}

/** Options of {@link ExcludeTransform}. */
export interface ExcludeTransformOptions {
  /** Keys to remove. */
  readonly keys: TransformKeys
}

/**
 * Reads all entries but those at some keys; keys without an entry are passed over.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { ExcludeTransform } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * using exclude = new ExcludeTransform({ keys: ['info', ['next', 'info']] })
 * const batch = TensorDict.from({ observation: Tensor.from([1]), info: Tensor.from([2]) })
 * assert.deepEqual(exclude.forward(batch).keys(), ['observation'])
 * ```
 */
export class ExcludeTransform extends Transform {
  /** @throws {FulmarError} `UNKNOWN_NAME` for an unknown option; `MALFORMED` without `keys`. */
  constructor(options: ExcludeTransformOptions) {
    super(() => rawTransform('ExcludeTransform', options))
  }
}
