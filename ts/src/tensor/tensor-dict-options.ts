/** Options of the methods of tensor dictionaries. */

import type { TensorDict } from './tensor-dict.js'

/** Options of {@link TensorDict.from}. */
export interface TensorDictOptions {
  /** Leading dimensions that the shape of every tensor has; never inferred. @default [] */
  readonly batchSize?: readonly number[]
  /** Name of each batch dimension, `null` for an unnamed one. @default no names */
  readonly names?: readonly (string | null)[]
}

/** Options of {@link TensorDict.padSequence}. */
export interface PadSequenceOptions {
  /** Batch dimension in which lengths differ, from the end if negative. @default 0 */
  readonly dim?: number
  /** Padding after the elements of shorter dictionaries; finite. @default 0 */
  readonly value?: number
  /** Key of an added mask: true at elements, false at padding. @default none */
  readonly mask?: string
}

/** Options of {@link TensorDict.select}. */
export interface SelectOptions {
  /** If true, a key without an entry throws; else it is skipped. @default true */
  readonly strict?: boolean
}

/** Options of {@link TensorDict.apply}. */
export interface ApplyOptions {
  /**
   * Batch size of the result and of all dictionaries in it, if leading dimensions change.
   * @default unchanged
   */
  readonly batchSize?: readonly number[]
  /** If true, keeps dictionaries that lose their last entry, empty. @default false */
  readonly keepEmpty?: boolean
}

/** Options of {@link TensorDict.rename}. */
export interface RenameOptions {
  /** If true, an existing key throws; else it is overwritten. @default false */
  readonly safe?: boolean
}
