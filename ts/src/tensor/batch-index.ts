/** Indices of batch elements: positions, ranges, lists, masks and combinations of them. */

import { FulmarError } from '../core/index.js'
import { Tensor } from './tensor.js'

/** Every `step`-th position from `start` up to and without `stop`; negative ones count from the end. */
export interface IndexRange {
  /** First position. @default the first position of the dimension */
  readonly start?: number
  /** Position after the last. @default past the last position */
  readonly stop?: number
  /** At least 1. @default 1 */
  readonly step?: number
}

/**
 * One item of an index, which applies to the next batch dimension. A number selects one position, from the
 * end if negative, and removes the dimension. A list or a tensor of integers selects positions. Bools are a
 * mask over as many dimensions as the tensor has. `null` inserts a dimension of length 1. `'...'` covers all
 * dimensions that the other items leave.
 */
export type BatchIndex = number | null | '...' | IndexRange | readonly number[] | readonly boolean[] | Tensor

/** Returns an index as JSON for the core. */
export function indexJson(index: readonly BatchIndex[]): string {
  return JSON.stringify(index.map(itemOf))
}

/** Returns the elements of a tensor of positions as numbers. */
export function positionsOf(tensor: Tensor): number[] {
  if (tensor.dtype.startsWith('i') || tensor.dtype.startsWith('u')) return Array.from(tensor.data, Number)
  throw new FulmarError('INCOMPATIBLE', `an index must hold integers or bools: got ${tensor.dtype}`)
}

/** Returns the elements of a mask. */
export function maskOf(tensor: Tensor): boolean[] {
  return Array.from(tensor.as('bool').data, Boolean)
}

function itemOf(item: BatchIndex): unknown {
  if (!(item instanceof Tensor)) return item
  const { shape, dtype } = item
  return dtype === 'bool' ? { shape, mask: maskOf(item) } : { shape, at: positionsOf(item) }
}
