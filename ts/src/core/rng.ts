/** Random numbers that depend only on (seed, stream, position). */

import { type RawRng, raw } from '../native/index.js'
import { FulmarError } from './error.js'
import { Handle } from './handle.js'
import { checkGiven } from './options.js'

/** Position in a stream of random words as plain JSON: three unsigned 64-bit integers in hexadecimal. */
export interface RngState {
  /** The seed. */
  readonly key: string
  /** The stream. */
  readonly stream: string
  /** Number of 32-bit words drawn so far. */
  readonly wordIndex: string
}

/**
 * A seeded generator (Philox4x32-10) of independent, named streams. Gives the same numbers natively, in
 * WebAssembly and
 * in Rust. Holds a few bytes of native memory: dispose it, declare it with `using`, or leave it to the collector.
 *
 * @example
 * ```ts
 * import { Rng } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * using rng = Rng.fromSeed(7)
 * using draws = rng.stream('draws')
 * using again = Rng.fromSeed(7).stream('draws')
 * assert.equal(draws.nextU32(), again.nextU32())
 * assert.ok(draws.below(6) < 6)
 * using fork = rng.fork(3)
 * assert.equal(rng.belowAt([3], 6), fork.below(6))
 * ```
 */
export class Rng {
  readonly #native: Handle<RawRng>

  private constructor(make: () => RawRng) {
    this.#native = new Handle('Rng', make)
  }

  /**
   * Returns the main stream of `seed`, at its beginning.
   * @throws {FulmarError} `OUT_OF_RANGE` if `seed` is not an integer from 0 to 2^53 - 1.
   */
  static fromSeed(seed: number): Rng {
    return new Rng(() => new raw.Rng(seed))
  }

  /**
   * Restores the generator at the position of `state`.
   * @throws {FulmarError} `MALFORMED` if a field is not an unsigned 64-bit integer in hexadecimal.
   */
  static fromState(state: RngState): Rng {
    checkGiven('state', state)
    const words = BigUint64Array.of(
      parseWord('key', state.key),
      parseWord('stream', state.stream),
      parseWord('wordIndex', state.wordIndex),
    )
    return new Rng(() => raw.Rng.fromState(words))
  }

  /** Position of this generator. */
  get state(): RngState {
    const [key = 0n, stream = 0n, wordIndex = 0n] = this.#native.call((rng) => rng.state())
    return { key: formatWord(key), stream: formatWord(stream), wordIndex: formatWord(wordIndex) }
  }

  /** Returns the beginning of the child stream called `name`. Does not advance this generator. */
  stream(name: string): Rng {
    return new Rng(() => this.#native.call((rng) => rng.stream(name)))
  }

  /**
   * Returns the beginning of the child stream number `index`. Does not advance this generator.
   * @throws {FulmarError} `OUT_OF_RANGE` if `index` is not an integer from 0 to 2^53 - 1.
   */
  fork(index: number): Rng {
    return new Rng(() => this.#native.call((rng) => rng.fork(index)))
  }

  /** Draws 32 uniform bits. */
  nextU32(): number {
    return this.#native.call((rng) => rng.nextU32())
  }

  /** Draws a uniform number in `[0, 1)` on a grid of 2^-53. */
  uniform(): number {
    return this.#native.call((rng) => rng.uniform())
  }

  /** Draws a standard normal number. */
  normal(): number {
    return this.#native.call((rng) => rng.normal())
  }

  /**
   * Draws a uniform integer in `[0, bound)`, without bias.
   * @throws {FulmarError} `OUT_OF_RANGE` if `bound` is not an integer from 1 to 2^53 - 1.
   */
  below(bound: number): number {
    return this.#native.call((rng) => rng.below(bound))
  }

  /**
   * Returns the number that `fork` of each index of `path` in turn, and then `below(bound)`, would draw, in
   * one call and without creating the generators. Does not advance this generator.
   * @throws {FulmarError} `OUT_OF_RANGE` as {@link Rng.fork} and {@link Rng.below}.
   */
  belowAt(path: readonly number[], bound: number): number {
    return this.#native.call((rng) => rng.belowAt(new Float64Array(path), bound))
  }

  /**
   * Draws a uniformly random order of the integers `0..count`. A new array of `count` entries.
   * @throws {FulmarError} `OUT_OF_RANGE` if `count` is not an integer from 0; `LIMIT_EXCEEDED` above 2^24.
   */
  permutation(count: number): Uint32Array {
    return this.#native.call((rng) => rng.permutation(count))
  }

  /** Frees the native memory. */
  [Symbol.dispose](): void {
    this.#native.free()
  }
}

function formatWord(word: bigint): string {
  return `0x${word.toString(16)}`
}

function parseWord(name: string, text: string): bigint {
  if (!/^0x[0-9a-f]{1,16}$/i.test(text)) {
    throw new FulmarError('MALFORMED', `state.${name} must be a 64-bit integer in hexadecimal: got ${text}`)
  }
  return BigInt(text)
}
