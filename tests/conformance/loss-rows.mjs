/**
 * Shared code of rows of losses: nested lists as columns, and comparisons. Log-probabilities cross as singles, so values of doubles are
 * compared to a relative 1e-5, as those of singles are: one number with 1e-6 besides, several to the largest of them.
 */

const RELATIVE = 1e-5
const ABSOLUTE = { one: 1e-6, several: 1e-9 }

/** A number, or one of the strings and words for numbers that JSON cannot write. */
export const number = (value) =>
  typeof value === 'boolean' ? Number(value) : value === null ? Number.NaN : +value

/** All numbers of nested lists, in order. */
export const flat = (value) => [value].flat(Number.POSITIVE_INFINITY).map(number)

export const singles = (value) => Float32Array.from(flat(value))

export const bits = (value) => Uint8Array.from(flat(value))

/** Returns the ends of sequences of these lengths. */
export function offsetsOf(lengths) {
  const offsets = new Uint32Array(lengths.length + 1)
  for (const [at, length] of lengths.entries()) offsets[at + 1] = offsets[at] + length
  return offsets
}

/** The same for a list of sequences. */
export const offsetsIn = (sequences) => offsetsOf(sequences.map((sequence) => sequence.length))

const numbersIn = (value) => flat([value].flat().map((one) => (ArrayBuffer.isView(one) ? [...one] : one)))

/** The first difference between two lists of numbers; `counts` says which are compared. */
export function farther(what, got, wanted, { relative = RELATIVE, absolute, counts = () => true } = {}) {
  const [left, right] = [numbersIn(got), numbersIn(wanted)]
  if (left.length !== right.length) return `${what}: got ${left.length} numbers, expected ${right.length}`
  const largest = Math.max(0, ...right.map(Math.abs).filter(Number.isFinite))
  const near = relative * largest + (absolute ?? (right.length === 1 ? ABSOLUTE.one : ABSOLUTE.several))
  const at = right.findIndex(
    (one, index) => counts(index) && !Object.is(left[index], one) && !(Math.abs(left[index] - one) <= near),
  )
  return at < 0 ? undefined : `${what}[${at}]: got ${left[at]}, expected ${right[at]}`
}

/** Returns the result of `body`, or the code of its error. */
export function attempt(body) {
  try {
    return { value: body() }
  } catch (error) {
    if (error instanceof Error && 'code' in error) return { code: error.code }
    throw error
  }
}

/** A name of snake case as TypeScript writes it. */
export const camel = (name) => name.replace(/_(\w)/g, (_, letter) => letter.toUpperCase())

/** A decision by its name, unless something is not the value that it implies: the first of these differences. */
export const decided = (byDecision, ...differences) =>
  differences.find((difference) => difference !== undefined) ?? { byDecision }
