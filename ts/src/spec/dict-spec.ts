/** Methods of specs with keys: dictionaries, and stacks of them. */

import type { TensorKey } from '../tensor/index.js'
import { pathOf } from '../tensor/tensor-dict.js'
import type { TensorSpec } from './tensor-spec.js'
import { specAround, withRawSpec } from './tensor-spec.js'

/** The names of the entries, nested ones not visited. */
export function keysOf(spec: TensorSpec): string[] {
  return (JSON.parse(withRawSpec(spec, (one) => one.keys())) as string[][]).flat()
}

/** The paths of all entries, nested ones before the dictionary that holds them. */
export function nestedKeysOf(spec: TensorSpec): string[][] {
  return JSON.parse(withRawSpec(spec, (one) => one.nestedKeys())) as string[][]
}

/** The paths of all entries that are not dictionaries. */
export function leafKeysOf(spec: TensorSpec): string[][] {
  return JSON.parse(withRawSpec(spec, (one) => one.leafKeys())) as string[][]
}

/** Returns a copy of the entry at `key`; `null` where any value is allowed, `undefined` without such a key. */
export function entryOf(spec: TensorSpec, key: TensorKey): TensorSpec | null | undefined {
  const path = pathOf(key)
  const found = withRawSpec(spec, (one) => one.get(path))
  if (found) return specAround(() => found)
  return withRawSpec(spec, (one) => one.has(path)) ? null : undefined
}

/** The same without entries. */
export function emptied(spec: TensorSpec): TensorSpec {
  return specAround(() => withRawSpec(spec, (one) => one.operate('{"op":"empty"}')))
}
