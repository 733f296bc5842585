/** HDF5 files of dictionaries: groups are dictionaries, data sets are tensors. */

import { call, checkTypedArray } from '../core/index.js'
import { type RawHdf5File, raw } from '../native/index.js'
import type { TensorDict } from '../tensor/index.js'
import { dictAround, withRawDict } from '../tensor/tensor-dict.js'

/**
 * Reads an HDF5 file as a dictionary without batch dimensions: numbers, bools as h5py writes them, and texts,
 * also compressed. Ignores attributes. Copies.
 * @throws {FulmarError} `CORRUPT` if the bytes are not an HDF5 file or a data set cannot be read;
 * `INCOMPATIBLE`, with the key, for other content; `LIMIT_EXCEEDED` if groups are nested too deep, or a data set is too long.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { readHdf5, writeHdf5 } from 'fulmar/replay/files'
 * import assert from 'node:assert/strict'
 *
 * const dict = TensorDict.from({ reward: Tensor.from([0.5, 1]) }).set(['traj_0', 'ids'], Tensor.from(Int32Array.of(1, 2)))
 * assert.ok(readHdf5(writeHdf5(dict)).equals(dict))
 * assert.throws(() => readHdf5(new Uint8Array(8)), { code: 'CORRUPT' })
 * ```
 */
export function readHdf5(bytes: Uint8Array): TensorDict {
  checkTypedArray('bytes', bytes, Uint8Array)
  return dictAround(() => using(raw.Hdf5File.read(bytes), (file) => file.dict()))
}

/**
 * The bytes of an HDF5 file with a data set for each tensor and a group for each dictionary.
 * @throws {FulmarError} `INCOMPATIBLE`, with the key, at an entry that is neither, or a dtype that HDF5 has no name for; `MALFORMED` if
 *   a key is empty, `.` or `..`, or holds a `/`.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { writeHdf5 } from 'fulmar/replay/files'
 * import assert from 'node:assert/strict'
 *
 * const bytes = writeHdf5(TensorDict.from({ reward: Tensor.from([0.5, 1]) }))
 * assert.equal(String.fromCharCode(...bytes.slice(1, 4)), 'HDF')
 * assert.throws(() => writeHdf5(TensorDict.from({ 'a/b': Tensor.from([1]) })), { code: 'MALFORMED' })
 * ```
 */
export function writeHdf5(dict: TensorDict): Uint8Array {
  const file = call(() => withRawDict(dict, (one) => raw.Hdf5File.of(one)))
  return call(() => using(file, (file) => file.bytes()))
}

function using<R>(file: RawHdf5File, body: (file: RawHdf5File) => R): R {
  try {
    return body(file)
  } finally {
    file.free()
  }
}
