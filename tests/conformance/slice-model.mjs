/** Every slice that TorchRL's sampler can draw, with its exact probability, by going through all of its draws. */

/** A fraction: `[over, under]`, both whole. */
export const fractionIn = (text) => String(text).split('/').map(BigInt)

const plus = ([a, b], [c, d]) => [a * d + c * b, b * d]
const times = ([a, b], [c, d]) => [a * c, b * d]

/** Returns whether two fractions are the same number. */
export const isSameFraction = ([a, b = 1n], [c, d = 1n]) => a * d === c * b

/**
 * Slices as `rows -> { p, mask }`, rows joined by commas; `undefined` where the original fails. `trajectories` have a first row and a
 * length, in a ring of `capacity` rows; `span` says how far a slice may stick out at either end.
 */
export function slicesOf(
  trajectories,
  { capacity, sliceLen, strictLength = true, padOutput = false, span = [] },
) {
  const isShort = trajectories.some(({ length }) => length < sliceLen)
  const all = strictLength ? trajectories.filter(({ length }) => length >= sliceLen) : trajectories
  if (all.length === 0) return undefined
  const isCut = isShort && !strictLength
  // With slices of several lengths, a number less than all of them cannot be given.
  if (isCut && span.some((one) => typeof one === 'number' && one > 0)) return undefined
  const slices = new Map()
  for (const { start, length } of all) {
    const size = isCut ? Math.min(sliceLen, length) : sliceLen
    const range = rangeOf(span, size, length)
    if (range === undefined) return undefined
    const [first, end] = range
    if (end <= first) return undefined
    const p = times([1n, BigInt(all.length)], [1n, BigInt(end - first)])
    for (let at = first; at < end; at++) {
      const from = Math.max(at, 0)
      let count = at < 0 ? size + at : size
      if (span[1]) count = Math.min(count, length - from)
      const rows = Array.from({ length: Math.max(count, 0) }, (_, step) => (start + from + step) % capacity)
      const isPadded = padOutput && isCut
      const width = isPadded ? sliceLen : rows.length
      const shown = Array.from({ length: width }, (_, step) => rows[Math.min(step, rows.length - 1)])
      const mask = isPadded ? shown.map((_, step) => step < rows.length) : undefined
      const key = shown.join()
      slices.set(key, { p: plus(slices.get(key)?.p ?? [0n, 1n], p), mask })
    }
  }
  return slices
}

/** First steps of a slice, from and to; `undefined` where a span is too wide for it. */
function rangeOf([left = false, right = false], size, length) {
  const isWide = (span) => typeof span === 'number' && span > 0 && span >= size
  if (isWide(left) || isWide(right)) return undefined
  const end = !right ? length - size + 1 : right === true ? length + 1 : length - right
  return [!left ? 0 : left === true ? 1 - size : -left, end]
}
