/** Safetensors files as bytes. */

import { call, checkGiven, checkTypedArray, describeValue, FulmarError } from '../core/index.js'
import { raw } from '../native/index.js'
import { bytesOf } from './dtype.js'
import { type Tensor, tensorAround, withRawTensor } from './tensor.js'

/** Contents of a safetensors file. */
export interface SafetensorsFile {
  /**
   * Tensors by name, in the order of their names. `get` of a tensor that was not read throws `UNAVAILABLE`
   * with its dtype.
   */
  readonly tensors: ReadonlyMap<string, Tensor>
  /** Dtypes of the tensors that were not read, by name: dtypes without a {@link Dtype} (`F8_E4M3`, `U16`). */
  readonly unread: Readonly<Record<string, string>>
  /** Metadata texts of the header. */
  readonly metadata: Readonly<Record<string, string>>
}

/**
 * Reads a whole file and validates it; copies the elements. Blocks for as long as a copy of `bytes` takes.
 *
 * @throws {FulmarError} `CORRUPT`, with the tensor's name, if the bytes break a rule of the format;
 * `LIMIT_EXCEEDED` if the header is longer than 100,000,000 bytes or a shape has more than 16 dimensions;
 * `UNKNOWN_NAME` if a dtype is not in the format; `MALFORMED` if the memory of `bytes` was transferred away.
 *
 * @example
 * ```ts
 * import { readSafetensors, Tensor, writeSafetensors } from 'fulmar/tensor'
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
      const unread = JSON.parse(file.unread()) as Record<string, string>
      const metadata = JSON.parse(file.metadata()) as Record<string, string>
      return { tensors: new ReadTensors(tensors, unread), metadata, unread }
    } finally {
      file.free()
    }
  })
}

/** Tensors that were read; `get` throws the dtype of one that was not. */
class ReadTensors extends Map<string, Tensor> {
  readonly #unread: ReadonlyMap<string, string>

  constructor(tensors: Iterable<readonly [string, Tensor]>, unread: Readonly<Record<string, string>>) {
    super(tensors)
    this.#unread = new Map(Object.entries(unread))
  }

  override get(name: string): Tensor | undefined {
    const dtype = this.#unread.get(name)
    if (dtype === undefined) return super.get(name)
    throw new FulmarError(
      'UNAVAILABLE',
      `tensor "${name}" must have a dtype that Tensor supports: got ${dtype}`,
    )
  }
}

/**
 * Returns the bytes of a file with these tensors. The same tensors and texts give the same bytes, in any
 * order.
 *
 * @throws {FulmarError} `MALFORMED` if a name is `__metadata__`; `CLOSED` if a tensor was disposed.
 *
 * @example
 * ```ts
 * import { Tensor, writeSafetensors } from 'fulmar/tensor'
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
  if (typeof tensors !== 'object')
    throw new FulmarError('MALFORMED', `tensors must be a Map or an object: got ${describeValue(tensors)}`)
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
