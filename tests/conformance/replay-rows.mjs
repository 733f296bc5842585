/** Reading the golden rows of replay buffers, comparing numbers, and judging draws. */

import { Tensor, TensorDict } from 'fulmar'
import { DTYPES } from './dtypes.mjs'

const ARRAYS = { f64: Float64Array, f32: Float32Array, i32: Int32Array, u8: Uint8Array, bool: Uint8Array }

/** The numbers of a list, of a tensor, or of one number. */
export function numbersIn(value) {
  if (value?.$t) return numbersIn(value.d)
  return (Array.isArray(value) ? value : [value]).map((one) => Number(one) + 0)
}

export function tensorIn({ $t: name, s: shape, d: elements }) {
  const dtype = DTYPES[name]
  if (dtype === 'i64') return Tensor.from(BigInt64Array.from(elements, BigInt), { shape })
  return Tensor.from(ARRAYS[dtype].from(numbersIn(elements)), { shape, dtype })
}

export function dictIn({ $td: batchSize, k: entries }) {
  const dict = TensorDict.from({}, { batchSize })
  for (const [name, value] of Object.entries(entries))
    dict.set([name], value.$td ? dictIn(value) : tensorIn(value))
  return dict
}

/** A key as the rows write it. */
export const keyIn = (key) => key?.$tuple ?? key
/** Returns whether an index is a key. */
export const isKey = (index) =>
  typeof index === 'string' || (index?.$tuple ?? index)?.every?.((name) => typeof name === 'string') === true

export function indexIn(index) {
  if (index?.$tuple) return index.$tuple.flatMap(indexIn)
  if (index?.$t) return [tensorIn(index)]
  if (!index?.$slice) return [index]
  const [start, stop, step] = index.$slice.map((bound) => bound ?? undefined)
  return [
    { ...(start !== undefined && { start }), ...(stop !== undefined && { stop }), ...(step && { step }) },
  ]
}

/** The elements of a tensor, as numbers. */
export const elementsOf = (tensor) => Array.from(tensor.data, (element) => Number(element) + 0)

/** Nothing if all numbers are near, else which is not. */
export function far(what, got, want, relative = 1e-5, absolute = 1e-12) {
  if (got.length !== want.length) return `${what}: got ${got.length} numbers, expected ${want.length}`
  // A value that is not a number must be equal.
  const isNear = (one, other) =>
    Object.is(one, other) || Math.abs(one - other) <= relative * Math.abs(other) + absolute
  const at = got.findIndex((one, at) => !isNear(one, want[at]))
  return at < 0 ? undefined : `${what}[${at}]: got ${got[at]}, expected ${want[at]}`
}

/** Nothing if kinds are drawn as often as they should be (chi-square below its 0.999 quantile), else the difference. */
export function misdrawn(draws, probabilities) {
  const counts = probabilities.map(() => 0)
  for (const draw of draws) counts[draw] += 1
  const total = probabilities.reduce((sum, one) => sum + one, 0)
  const rare = { got: 0, expected: 0 }
  const classes = []
  for (const [kind, got] of counts.entries()) {
    const expected = (probabilities[kind] / total) * draws.length
    if (expected === 0 && got > 0) return `kind ${kind} is impossible and was drawn ${got} times`
    if (expected >= 5) classes.push({ got, expected })
    else {
      rare.got += got
      rare.expected += expected
    }
  }
  if (rare.expected >= 5) classes.push(rare)
  const chiSquare = classes.reduce((sum, { got, expected }) => sum + (got - expected) ** 2 / expected, 0)
  const freedom = classes.length - 1
  // Wilson and Hilferty's approximation of the quantile.
  const spread = 2 / (9 * freedom)
  const quantile = freedom * (1 - spread + 3.0902 * Math.sqrt(spread)) ** 3
  return freedom > 0 && chiSquare >= quantile ? `chi-square ${chiSquare} of ${freedom}: ${counts}` : undefined
}

/** Returns the result of a call, or Fulmar's error; other errors are thrown. */
export function attempt(run) {
  try {
    return { value: run() }
  } catch (error) {
    if (error.code === undefined) throw error
    return { error }
  }
}

/** The states of a buffer's parts. */
export const partsOf = (buffer) => JSON.parse(buffer.stateDict().parts)
export const decided = (byDecision) => ({ byDecision })
export const skipped = (reason) => ({ skipped: reason })
export const range = (count) => Array.from({ length: count }, (_, at) => at)
/** Only what is given. */
export const given = (options) =>
  Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined && value !== null))
