/** Token ids of the elements of a batch, as entries of dictionaries. */

import { FulmarError } from '../../core/index.js'
import { Ragged, Tensor, type TensorDict, type TensorKey } from '../../tensor/index.js'

/** Returns the ids of each element at `key`; `undefined` if absent. */
export function idRowsAt(dict: TensorDict, key: TensorKey): Uint32Array[] | undefined {
  const entry = dict.get(key)
  if (entry === undefined) return undefined
  if (entry instanceof Ragged) {
    return Array.from({ length: entry.numRows }, (_, row) => idsOf(entry.row(row)))
  }
  if (entry instanceof Tensor && entry.shape.length === 2) {
    return Array.from({ length: entry.shape[0] ?? 0 }, (_, row) => idsOf(entry.select(0, row)))
  }
  throw new FulmarError('SHAPE_MISMATCH', `${JSON.stringify(key)} must hold rows of ids: got another entry`)
}

/** Puts ids at `key`, `i64`, a row for each element. */
export function setIdRows(dict: TensorDict, key: TensorKey, rows: readonly Uint32Array[]): TensorDict {
  return dict.set(key, Ragged.fromRows(rows.map((ids) => Tensor.from(BigInt64Array.from(ids, BigInt)))))
}

/** Both, one behind the other. */
export function joinedIds(before: Uint32Array, behind: Uint32Array): Uint32Array {
  const joined = new Uint32Array(before.length + behind.length)
  joined.set(before)
  joined.set(behind, before.length)
  return joined
}

function idsOf(row: Tensor): Uint32Array {
  return Uint32Array.from(row.as('i64').data, (id) => {
    if (id >= 0n && id < 2n ** 32n) return Number(id)
    throw new FulmarError('OUT_OF_RANGE', `ids must be integers from 0 below 2^32: got ${id}`)
  })
}
