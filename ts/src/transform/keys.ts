/** Some of the entries, or all under other names. */

import { rawTransform, Transform, type TransformKeys } from './transform.js'

/** Options of {@link RenameTransform}. */
export interface RenameTransformOptions {
  /** What is renamed when a batch is read. @default [] */
  readonly inKeys?: TransformKeys
  /** The names it gets, as many. @default [] */
  readonly outKeys?: TransformKeys
  /** The names that items are stored under. @default [] */
  readonly inKeysInv?: TransformKeys
  /** What is renamed to them when items are written, as many; what is missing is passed over. @default [] */
  readonly outKeysInv?: TransformKeys
  /** Whether the old names stay, too. @default false */
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
  /** What stays. */
  readonly keys: TransformKeys
  /** Whether `reward` stays as well, at the root and below `next`. @default true */
  readonly keepRewards?: boolean
  /** Whether `done`, `terminated` and `truncated` stay as well, at the root and below `next`. @default true */
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
  /** What goes. */
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
