/** Nested lists and objects of tensors as tensor dictionaries, and back. */

import { checkGiven } from '../core/index.js'
import { type Json, NonTensorData, NonTensorStack } from './non-tensor.js'
import { Ragged } from './ragged.js'
import { Tensor } from './tensor.js'
import { checkDict, TensorDict } from './tensor-dict.js'
import type { TensorDictOptions } from './tensor-dict-options.js'

/** Nested lists and objects of entries; other JSON values are entries themselves. */
export type Pytree =
  | Tensor
  | Ragged
  | TensorDict
  | NonTensorData
  | NonTensorStack
  | string
  | number
  | boolean
  | null
  | readonly Pytree[]
  | { readonly [name: string]: Pytree }

/**
 * Converts a tree to a dictionary. Objects and lists become dictionaries, lists with the keys `'0'`, `'1'`,
 * ... Shares the elements.
 * @throws {FulmarError} `LIMIT_EXCEEDED` if it is nested more than 32 deep; those of {@link TensorDict.set}.
 *
 * @example
 * ```ts
 * import { fromPytree, Tensor, toPytree } from 'fulmar/tensor'
 * import assert from 'node:assert/strict'
 *
 * const dict = fromPytree({ layers: [Tensor.from([1]), { bias: Tensor.from([2]) }], name: 'net' })
 * assert.deepEqual(dict.leafKeys(), [['layers', '0'], ['layers', '1', 'bias'], ['name']])
 * assert.deepEqual(fromPytree(toPytree(dict)).leafKeys(), dict.leafKeys())
 * ```
 */
export function fromPytree(
  tree: readonly Pytree[] | { readonly [name: string]: Pytree },
  options: TensorDictOptions = {},
): TensorDict {
  checkGiven('tree', tree)
  const dict = TensorDict.from({}, options)
  for (const [name, node] of Object.entries(tree)) plant(dict, [name], node)
  return dict
}

/**
 * Converts a dictionary to a tree: a dictionary with the keys `'0'`, `'1'`, ... in this order becomes a list.
 * Shares the elements.
 *
 * @example
 * ```ts
 * import { fromPytree, toPytree } from 'fulmar/tensor'
 * import assert from 'node:assert/strict'
 *
 * assert.deepEqual(toPytree(fromPytree({ words: ['a', 'b'] })), { words: ['a', 'b'] })
 * ```
 */
export function toPytree(dict: TensorDict): readonly Pytree[] | { readonly [name: string]: Pytree } {
  checkDict(dict)
  const names = dict.keys()
  const nodes = names.map((name) => {
    const entry = dict.get([name]) ?? null
    if (entry instanceof NonTensorData) return treeOf(entry.value)
    return entry instanceof TensorDict ? toPytree(entry) : entry
  })
  const isList = names.length > 0 && names.every((name, at) => name === String(at))
  return isList ? nodes : Object.fromEntries(names.map((name, at) => [name, nodes[at] ?? null]))
}

function plant(dict: TensorDict, path: readonly string[], node: Pytree): void {
  if (isEntry(node)) {
    dict.set(path, node)
  } else if (typeof node !== 'object' || node === null) {
    dict.set(path, new NonTensorData(node))
  } else {
    // Checked before its contents, so that a tree that is too deep or cyclic is rejected.
    dict.set(path, TensorDict.from({}, { batchSize: dict.batchSize }))
    for (const [name, inner] of Object.entries(node)) plant(dict, [...path, name], inner)
  }
}

function isEntry(node: Pytree): node is Tensor | Ragged | TensorDict | NonTensorData | NonTensorStack {
  return [Tensor, Ragged, TensorDict, NonTensorData, NonTensorStack].some((kind) => node instanceof kind)
}

/** Keeps as entries the values that would not round-trip. */
function treeOf(value: Json): Pytree {
  return typeof value === 'object' && value !== null ? new NonTensorData(value) : value
}
