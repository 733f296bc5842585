/** Safetensors files as bytes. */

import { call, checkGiven, checkTypedArray } from '../core/index.js'
import { raw } from '../native/index.js'
import { bytesOf } from './dtype.js'
import { type Tensor, tensorAround, withRawTensor } from './tensor.js'

/** What a safetensors file holds. */
export interface SafetensorsFile {
  /** The tensors by name, in the order of their names. */
  readonly tensors: ReadonlyMap<string, Tensor>
  /** The free texts of the header. */
  readonly metadata: Readonly<Record<string, string>>
}

/**
 * Reads a whole file. Trusts nothing of it; copies the elements. Blocks for as long as a copy of `bytes` takes.
 *
 * @throws {FulmarError} `CORRUPT`, with the tensor's name, if the bytes break a rule of the format; `LIMIT_EXCEEDED`
 *   if the header is longer than 100,000,000 bytes or a shape has more than 16 dimensions; `UNKNOWN_NAME` if a dtype is
 *   not one of {@link Dtype}; `MALFORMED` if the memory of `bytes` was transferred away.
 *
 * @example
 * ```ts
 * import { readSafetensors, Tensor, writeSafetensors } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * using weight = Tensor.from(Float32Array.of(1, 2))
 * const file = readSafetensors(writeSafetensors({ weight }, { format: 'pt' }))
 * assert.ok(file.tensors.get('weight')?.equals(weight))
 * assert.deepEqual(file.metadata, { format: 'pt' })
 * ```
 */
export function readSafetensors(bytes: Uint8Array): SafetensorsFile {
  checkTypedArray('bytes', bytes, Uint8Array)
  bytesOf('bytes', bytes)
  return call(() => {
    const file = raw.SafetensorsFile.read(bytes)
    try {
      const tensors = file.names().map((name) => [name, tensorAround(() => file.tensor(name))] as const)
      return { tensors: new Map(tensors), metadata: JSON.parse(file.metadata()) as Record<string, string> }
    } finally {
      file.free()
    }
  })
}

/**
 * The bytes of a file with these tensors: the same tensors and texts always give the same bytes, in whatever order.
 *
 * @throws {FulmarError} `MALFORMED` if a name is `__metadata__`; `CLOSED` if a tensor was disposed.
 *
 * @example
 * ```ts
 * import { Tensor, writeSafetensors } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * using mask = Tensor.from(Uint8Array.of(1, 0, 1), { dtype: 'bool' })
 * assert.deepEqual(writeSafetensors({ mask }).subarray(-3), Uint8Array.of(1, 0, 1))
 * ```
 */
export function writeSafetensors(
  tensors: Readonly<Record<string, Tensor>> | ReadonlyMap<string, Tensor>,
  metadata: Readonly<Record<string, string>> = {},
): Uint8Array {
  checkGiven('tensors', tensors)
  const named = tensors instanceof Map ? tensors : Object.entries(tensors)
  return call(() => {
    const file = raw.SafetensorsFile.empty(JSON.stringify(metadata))
    try {
      for (const [name, tensor] of named) withRawTensor(tensor, (one) => file.set(name, one))
      return file.bytes()
    } finally {
      file.free()
    }
  })
}
