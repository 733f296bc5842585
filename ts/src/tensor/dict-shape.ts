/** The keys that the type of a dictionary has, and the types of their entries. */

import type { Tensor } from './tensor.js'
import type { TensorDict, TensorDictEntry } from './tensor-dict.js'

/** The entries of a literal by name. A record of any names gives none. */
export type KnownShape<Entries> = {
  readonly [Name in keyof Entries as string extends Name ? never : Name]: Entries[Name]
}

/** Type of the entry at a path: that of the shape if it has the names, else any entry or none. */
export type EntryAt<Shape, Path> = Path extends readonly [infer Name extends keyof Shape, ...infer Rest]
  ? Rest extends readonly []
    ? Shape[Name]
    : Shape[Name] extends TensorDict<infer Inner>
      ? EntryAt<Inner, Rest>
      : TensorDictEntry | undefined
  : TensorDictEntry | undefined

/** The tensors among the types of an entry; any tensor without one. */
export type TensorOf<Entry> = [Extract<Entry, Tensor>] extends [never] ? Tensor : Extract<Entry, Tensor>

/** The dictionaries among the types of an entry; any dictionary without one. */
export type DictIn<Entry> = [Extract<Entry, TensorDict>] extends [never]
  ? TensorDict
  : Extract<Entry, TensorDict>

/** Shape of other elements of the same batch: tensors keep their type, and a ragged entry or a JSON value may change its kind. */
export type RowsOf<Shape> = {
  readonly [Name in keyof Shape]: Shape[Name] extends Tensor
    ? Shape[Name]
    : Shape[Name] extends TensorDict<infer Inner>
      ? TensorDict<RowsOf<Inner>>
      : TensorDictEntry
}

/** Shape of the entries at `Key`, as far as these are known names. */
export type Selected<Shape, Key> = string extends Key ? object : Pick<Shape, Extract<Key, keyof Shape>>

/** Shape without the entries at `Key`, or without any if these are not known names. */
export type Excluded<Shape, Key> = [Key] extends [keyof Shape] ? Omit<Shape, Key> : object
