/** Options of the methods of tensor dictionaries. */

import type { TensorDict } from './tensor-dict.js'

/** Options of {@link TensorDict.from}. */
export interface TensorDictOptions {
  /** The dimensions with which the shape of every tensor begins; never inferred. @default [] */
  readonly batchSize?: readonly number[]
  /** The name of each of them, `null` for none. @default no names */
  readonly names?: readonly (string | null)[]
}

/** Options of {@link TensorDict.padSequence}. */
export interface PadSequenceOptions {
  /** The batch dimension in which lengths differ, from the end if negative. @default 0 */
  readonly dim?: number
  /** What stands after the elements of shorter dictionaries; finite. @default 0 */
  readonly value?: number
  /** The key of a dictionary of bools to put beside them: true at elements, false at padding. @default none */
  readonly mask?: string
}

/** Options of {@link TensorDict.select}. */
export interface SelectOptions {
  /** Whether a key without an entry is refused instead of passed over. @default true */
  readonly strict?: boolean
}

/** Options of {@link TensorDict.apply}. */
export interface ApplyOptions {
  /** The batch size of the result and of all dictionaries in it, where leading dimensions change. @default each its own */
  readonly batchSize?: readonly number[]
  /** Whether dictionaries that lose their last entry stay, empty. @default false */
  readonly keepEmpty?: boolean
}

/** Options of {@link TensorDict.rename}. */
export interface RenameOptions {
  /** Whether a key that is taken is refused instead of overwritten. @default false */
  readonly safe?: boolean
}
