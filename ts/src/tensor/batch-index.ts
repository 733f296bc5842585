/** Which elements of a batch are meant: positions, ranges, lists, masks and their mixes. */

import { FulmarError } from '../core/index.js'
import { Tensor } from './tensor.js'

/** Every `step`-th position from `start` to before `stop`; negative ones count from the end. */
export interface IndexRange {
  /** @default the first position */
  readonly start?: number
  /** @default past the last position */
  readonly stop?: number
  /** At least 1. @default 1 */
  readonly step?: number
}

/**
 * One item of an index; each takes up the next batch dimension. A number is one position, from the end if negative, and
 * the dimension goes; a list or a tensor of integers picks positions; bools are a mask, over as many dimensions as the
 * tensor has; `null` is a new dimension of length 1; `'...'` stands for all dimensions that the other items leave.
 */
export type BatchIndex = number | null | '...' | IndexRange | readonly number[] | readonly boolean[] | Tensor

/** The JSON of an index for the core. */
export function indexJson(index: readonly BatchIndex[]): string {
  return JSON.stringify(index.map(itemOf))
}

/** The elements of a tensor of positions, as numbers. */
export function positionsOf(tensor: Tensor): number[] {
  if (tensor.dtype.startsWith('i') || tensor.dtype.startsWith('u')) return Array.from(tensor.data, Number)
  throw new FulmarError('INCOMPATIBLE', `an index must hold integers or bools: got ${tensor.dtype}`)
}

/** The elements of a mask. */
export function maskOf(tensor: Tensor): boolean[] {
  return Array.from(tensor.as('bool').data, Boolean)
}

function itemOf(item: BatchIndex): unknown {
  if (!(item instanceof Tensor)) return item
  const { shape, dtype } = item
  return dtype === 'bool' ? { shape, mask: maskOf(item) } : { shape, at: positionsOf(item) }
}
