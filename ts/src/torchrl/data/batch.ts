/** Values of a batch: flat and row-major, or in lists nested as the batch is. */

import { FulmarError } from '../../core/index.js'
import { History } from './history.js'
import type { Nested } from './nested.js'

/** Returns the number of elements of a batch. */
export function sizeOf(batchSize: readonly number[]): number {
  return batchSize.reduce((product, length) => product * length, 1)
}

/** Returns `values` in lists nested by `batchSize`; for `[]` the only value itself. */
export function nestedLike<T>(values: readonly T[], batchSize: readonly number[]): Nested<T> {
  const [length, ...inner] = batchSize
  if (length === undefined) return values[0] as T
  const size = sizeOf(inner)
  return Array.from({ length }, (_, at) => nestedLike(values.slice(at * size, (at + 1) * size), inner))
}

/** Texts without their lists, and the shape of these. `name` is the argument for messages. */
export function flatTexts(
  name: string,
  texts: unknown,
): { readonly flat: string[]; readonly batchSize: number[] } {
  if (typeof texts === 'string') return { flat: [texts], batchSize: [] }
  if (!Array.isArray(texts) || texts.length === 0)
    throw new FulmarError(
      'MALFORMED',
      `${name} must be a text, or a list of at least one: got ${String(texts)}`,
    )
  const parts = texts.map((part, at) => flatTexts(`${name}[${at}]`, part))
  const [first] = parts
  for (const [at, part] of parts.entries())
    checkBatch(`${name}[${at}]`, part.batchSize, first?.batchSize ?? [])
  return { flat: parts.flatMap(({ flat }) => flat), batchSize: [parts.length, ...(first?.batchSize ?? [])] }
}

/** Returns conversations in lists nested by `batchSize`. */
export function stackedLike(rows: readonly History[], batchSize: readonly number[]): History {
  const stack = (nested: Nested<History>): History =>
    nested instanceof History ? nested : History.stack((nested as readonly Nested<History>[]).map(stack))
  return stack(nestedLike(rows, batchSize))
}

/** Refuses a batch that is not `expected`. */
export function checkBatch(name: string, got: readonly number[], expected: readonly number[]): void {
  if (got.length === expected.length && got.every((length, dim) => length === expected[dim])) return
  const [want, have] = [expected, got].map((shape) => `[${shape.join(', ')}]`)
  throw new FulmarError('SHAPE_MISMATCH', `${name} must be of the batch ${want}: got ${have}`)
}
