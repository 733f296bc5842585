/**
 * Runs of Parquet pages: levels, positions in a dictionary and truths are written as runs of one value or of packed bits. A run may claim more
 * values than its page has, which `hyparquet` would fill in, so runs are followed before.
 */

/** The values of a data page, and how its runs are packed. */
export interface PageRuns {
  readonly numValues: number
  /** Bits of a repetition level and of a definition level; 0 for none. */
  readonly levelBits: readonly number[]
  /** Kind of the values behind the levels: runs of positions in a dictionary, of truths, or no runs. */
  readonly values: 'dictionary' | 'truths' | 'plain'
}

/**
 * Follows the runs of a page that is not compressed: those of levels, each behind its length in four bytes, then those of values.
 * @throws {Error} for a run of more values than the page has, or one that ends behind the page.
 */
export function checkRuns(page: Uint8Array, { numValues, levelBits, values }: PageRuns): void {
  let at = 0
  for (const bits of levelBits.filter((one) => one > 0)) {
    const end = endOf(page, at)
    checkLevels(page.subarray(at + 4, end), numValues, bits)
    at = end
  }
  checkValues(page.subarray(at), numValues, values)
}

/** Follows the runs of levels, which have exactly the values of the page. */
export function checkLevels(bytes: Uint8Array, numValues: number, bits: number): void {
  const runs = new Runs(bytes, bits)
  for (let left = numValues; left > 0; ) {
    const run = runs.next()
    if (!run.isPacked && run.count > left) throw tooMany(run.count, left)
    left -= run.count
  }
}

/**
 * Returns true if all levels, of up to 8 bits, are `level`.
 * @throws {Error} for runs of fewer levels than the page has values.
 */
export function areAllLevel(bytes: Uint8Array, numValues: number, bits: number, level: number): boolean {
  const runs = new Runs(bytes, bits)
  for (let left = numValues; left > 0; ) {
    const { count, isPacked, offset } = runs.next()
    if (!isPacked && bytes[offset] !== level) return false
    const numPacked = isPacked ? Math.min(count, left) : 0
    for (let at = 0; at < numPacked; at++)
      if (bitsAt(bytes, 8 * offset + at * bits, bits) !== level) return false
    left -= count
  }
  return true
}

/** Returns up to 8 bits from bit `at` on. */
function bitsAt(bytes: Uint8Array, at: number, bits: number): number {
  const place = at >>> 3
  const word = (bytes[place] ?? 0) | ((bytes[place + 1] ?? 0) << 8)
  return (word >>> (at & 7)) & ((1 << bits) - 1)
}

/**
 * Returns true if levels of one bit are 0 at every `width`-th value and 1 elsewhere. The first of them is value `start`.
 * @throws {Error} for runs of fewer levels than the page has values.
 */
export function beginEvery(bytes: Uint8Array, numValues: number, width: number, start: number): boolean {
  const runs = new Runs(bytes, 1)
  let phase = start % width
  for (let left = numValues; left > 0; ) {
    const { count, isPacked, offset } = runs.next()
    const level = bytes[offset] ?? 0
    const end = Math.min(count, left)
    for (let at = 0; at < end; at++) {
      const found = isPacked ? ((bytes[offset + (at >>> 3)] ?? 0) >>> (at & 7)) & 1 : level
      if (found !== (phase === 0 ? 0 : 1)) return false
      phase = phase + 1 === width ? 0 : phase + 1
    }
    left -= count
  }
  return true
}

/** Follows the runs of values, of which there may be fewer than the page has, as some are null. */
export function checkValues(bytes: Uint8Array, numValues: number, values: PageRuns['values']): void {
  if (values === 'plain' || numValues === 0 || bytes.length === 0) return
  const bits = values === 'truths' ? 1 : (bytes[0] ?? 0)
  if (bits === 0) return
  const runs = new Runs(bytes.subarray(values === 'truths' ? 4 : 1), bits)
  for (let left = numValues; left > 0 && !runs.isAtEnd; ) {
    const run = runs.next()
    if (!run.isPacked && run.count > numValues) throw tooMany(run.count, numValues)
    left -= run.count
  }
}

/** Runs one after the other. */
class Runs {
  readonly #bytes: Uint8Array
  readonly #bits: number
  #at = 0

  constructor(bytes: Uint8Array, bits: number) {
    this.#bytes = bytes
    this.#bits = bits
  }

  get isAtEnd(): boolean {
    return this.#at >= this.#bytes.length
  }

  /** The number of values of the next run, and where they are. The last one of packed bits may be longer than what is left. */
  next(): { readonly count: number; readonly isPacked: boolean; readonly offset: number } {
    if (this.isAtEnd) throw new Error('runs of as many values as the page has: they end before')
    const header = this.#varInt()
    const offset = this.#at
    const isPacked = (header & 1) === 1
    const count = isPacked ? (header >>> 1) * 8 : header >>> 1
    this.#at += isPacked ? (header >>> 1) * this.#bits : Math.ceil(this.#bits / 8)
    return { count, isPacked, offset }
  }

  /** A whole number of at most 32 bits, seven a byte. */
  #varInt(): number {
    let value = 0
    for (let shift = 0; shift < 35; shift += 7) {
      const byte = this.#bytes[this.#at++] ?? 0
      value |= (byte & 0x7f) << shift
      if (byte < 0x80) break
    }
    return value >>> 0
  }
}

/** @internal The end of levels whose length is in front of them. */
export function endOf(page: Uint8Array, at: number): number {
  const end =
    at + 4 <= page.length
      ? at + 4 + new DataView(page.buffer, page.byteOffset + at).getUint32(0, true)
      : Number.NaN
  if (end <= page.length) return end
  throw new Error(`levels that end in a page of ${page.length} bytes: they end at ${end}`)
}

function tooMany(count: number, most: number): Error {
  return new Error(`runs of at most the ${most} values of a page: one has ${count}`)
}
