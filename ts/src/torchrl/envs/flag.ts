/** Flags and counts of the elements of a batch, one column wide as TorchRL has them. */

import { Tensor, type TensorDict, type TensorKey } from '../../tensor/index.js'
import { sizeOf } from '../data/batch.js'

/** Bools `[...batch, 1]`, all false unless `bits` are given. */
export function flags(batchSize: readonly number[], bits?: Iterable<boolean>): Tensor<'bool'> {
  const shape = [...batchSize, 1]
  if (bits === undefined) return Tensor.zeros('bool', shape)
  return Tensor.from(Uint8Array.from(bits, Number), { shape, dtype: 'bool' })
}

/** Returns the flag of each element at `key`; false for a missing one. */
export function flagsAt(dict: TensorDict, key: TensorKey): boolean[] {
  if (!dict.has(key)) return new Array<boolean>(sizeOf(dict.batchSize)).fill(false)
  return Array.from(dict.tensor(key).data, Boolean)
}

/** Sets `key` where it was set or `bits` are. */
export function raise(dict: TensorDict, key: TensorKey, bits: readonly boolean[]): void {
  const before = flagsAt(dict, key)
  dict.set(
    key,
    flags(
      dict.batchSize,
      bits.map((bit, at) => bit || before[at] === true),
    ),
  )
}
