/** A function applied to every tensor of a dictionary. */

import { Ragged } from './ragged.js'
import { Tensor } from './tensor.js'
import { TensorDict, type TensorDictEntry } from './tensor-dict.js'
import type { ApplyOptions } from './tensor-dict-options.js'

/** Applies `to` to the tensors of `dict`, whose path in the outermost dictionary is `path`, as {@link TensorDict.apply}. */
export function applied(
  dict: TensorDict,
  path: readonly string[],
  to: (tensor: Tensor, key: readonly string[]) => Tensor | undefined,
  options: ApplyOptions,
): TensorDict | undefined {
  const { batchSize = dict.batchSize, keepEmpty = false } = options
  const made = TensorDict.from({}, { batchSize })
  if (batchSize === dict.batchSize) made.names = dict.names
  const names = dict.keys()
  for (const name of names) {
    const entry = dict.get([name])
    const given = entry && appliedTo(entry, [...path, name])
    if (given !== undefined) made.set([name], given)
  }
  return keepEmpty || names.length === 0 || made.keys().length > 0 ? made : undefined

  function appliedTo(entry: TensorDictEntry, key: readonly string[]): TensorDictEntry | undefined {
    if (entry instanceof Tensor) return to(entry, key)
    if (entry instanceof TensorDict) return applied(entry, key, to, options)
    if (!(entry instanceof Ragged)) return entry
    const values = to(entry.values, key)
    return values && Ragged.from(values, entry.offsets)
  }
}
