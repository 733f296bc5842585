/** Values of specs on their way to the core and back. */

import { call, parseJson } from '../core/index.js'
import { type RawSpecValue, raw } from '../native/index.js'
import {
  type Json,
  NonTensorData,
  NonTensorStack,
  Ragged,
  Tensor,
  TensorDict,
  type TensorDictEntry,
} from '../tensor/index.js'
import { raggedAround, withRawRagged } from '../tensor/ragged.js'
import { indices, tensorAround, withRawTensor } from '../tensor/tensor.js'
import { dictAround, jsonOf, withRawDict } from '../tensor/tensor-dict.js'
import type { SpecShape } from './types.js'

/** Calls `body` with the raw form of `value`; `shape` is that of the spec, which determines the nesting of values of a batch. */
export function withValue<R>(value: TensorDictEntry, shape: SpecShape, body: (value: RawSpecValue) => R): R {
  const one = rawOf(value, shape)
  try {
    return call(() => body(one))
  } finally {
    one.free()
  }
}

/** The value that `make` makes. */
export function madeValue(make: () => RawSpecValue): TensorDictEntry {
  const value = call(make)
  try {
    return entryOf(value)
  } finally {
    value.free()
  }
}

function entryOf(value: RawSpecValue): TensorDictEntry {
  const tensor = call(() => value.tensor())
  if (tensor) return tensorAround(() => tensor)
  const dict = call(() => value.dict())
  if (dict) return dictAround(() => dict)
  const ragged = call(() => value.ragged())
  if (ragged) return raggedAround(() => ragged)
  const json = parseJson(call(() => value.json()) ?? 'null') as Json
  return call(() => value.kind()) === 'nonTensorStack' && Array.isArray(json)
    ? new NonTensorStack(json)
    : new NonTensorData(json)
}

function rawOf(value: TensorDictEntry, shape: SpecShape): RawSpecValue {
  if (value instanceof Tensor) return withRawTensor(value, (tensor) => raw.SpecValue.fromTensor(tensor))
  if (value instanceof TensorDict) return withRawDict(value, (dict) => raw.SpecValue.fromDict(dict))
  if (value instanceof Ragged) return withRawRagged(value, (ragged) => raw.SpecValue.fromRagged(ragged))
  if (value instanceof NonTensorData) return call(() => raw.SpecValue.fromShared(jsonOf(value.value)))
  const batch = indices(batchOf(value.values, shape))
  return call(() => raw.SpecValue.fromEach(batch, jsonOf(value.values)))
}

/** The lengths of the arrays that are batch dimensions: down to the first place where those of the spec end. */
function batchOf(values: readonly Json[], shape: SpecShape): number[] {
  const lengths: number[] = []
  for (let level: Json | undefined = values; Array.isArray(level); level = level[0]) {
    lengths.push(level.length)
    if (ends(lengths, shape)) break
  }
  return lengths
}

function ends(lengths: readonly number[], shape: SpecShape): boolean {
  const before = lengths.length - shape.length
  return before >= 0 && shape.every((length, dim) => length === -1 || length === lengths[before + dim])
}
