/** Texts that end a sequence: ids become text as they are drawn, and the text is looked through. */

import { describeValue, FulmarError } from '../core/index.js'

/** Most stop strings of a request. */
export const STOP_STRINGS_MAX = 64

/** Most UTF-16 units of a stop string. */
export const STOP_STRING_LENGTH_MAX = 1024

/**
 * Decodes the ids of one sequence to text, one piece per id: a `DecodeStream`, or an object with the same
 * methods.
 */
export interface PieceStream {
  /** The text that `id` completes; empty while a character is unfinished. */
  push(id: number): string
  /** Gives back what the stream holds. */
  [Symbol.dispose]?(): void
}

/**
 * Finds the first of some texts in a text that comes in pieces. Keeps no more of it than the longest of them could still need.
 *
 * @example
 * ```ts
 * import { StopStrings } from 'fulmar/model'
 * import assert from 'node:assert/strict'
 *
 * const stops = new StopStrings(['</answer>', '\n\n'])
 * assert.deepEqual(['42</ans', 'wer', '> and'].map((piece) => stops.push(piece)), [null, null, '</answer>'])
 * ```
 */
export class StopStrings {
  readonly #strings: readonly string[]
  readonly #kept: number
  #tail = ''

  /**
   * @throws {FulmarError} `MALFORMED` if they are not a list of strings; `EMPTY` for an empty one; `LIMIT_EXCEEDED` for too many or one that
   * is too long.
   */
  constructor(strings: readonly string[]) {
    const isList = Array.isArray(strings) && strings.every((text) => typeof text === 'string')
    if (!isList)
      throw new FulmarError('MALFORMED', `stopStrings must be strings: got ${describeValue(strings)}`)
    checkCount('stopStrings', strings.length, STOP_STRINGS_MAX)
    for (const [index, text] of strings.entries()) {
      if (text === '') throw new FulmarError('EMPTY', `stopStrings[${index}] must hold text: it is empty`)
      checkCount(`stopStrings[${index}]`, text.length, STOP_STRING_LENGTH_MAX)
    }
    this.#strings = strings
    this.#kept = Math.max(0, ...strings.map((text) => text.length - 1))
  }

  /** The stop string that `piece` completes, or `null`: of several the one that ends first, of equals the longest. */
  push(piece: string): string | null {
    const text = this.#tail + piece
    let [found, foundEnd]: [string | null, number] = [null, Number.POSITIVE_INFINITY]
    for (const stop of this.#strings) {
      const first = text.indexOf(stop)
      const end = first + stop.length
      const isBetter = end < foundEnd || (end === foundEnd && stop.length > (found?.length ?? 0))
      if (first >= 0 && isBetter) [found, foundEnd] = [stop, end]
    }
    this.#tail = this.#kept === 0 ? '' : text.slice(-this.#kept)
    return found
  }
}

/** Looks for stop strings in the text of one sequence. */
export interface StopWatch {
  /** The stop string that the text of `id` completes, or `null`. */
  readonly completes: (id: number) => string | null
  /** Gives back what the sequence's stream holds. */
  readonly close: () => void
}

/**
 * Watches one sequence, with a stream of its own. Close it when the sequence is done.
 * @throws {FulmarError} As {@link StopStrings}; `UNAVAILABLE` for strings without a way to make text of ids.
 */
export function watchStops(
  strings: readonly string[],
  decodeStream: (() => PieceStream) | undefined,
): StopWatch {
  const stops = new StopStrings(strings)
  if (strings.length === 0) return { completes: () => null, close: () => {} }
  if (!decodeStream)
    throw new FulmarError(
      'UNAVAILABLE',
      'stopStrings must come with a stream that decodes ids: there is none',
    )
  const stream = decodeStream()
  return { completes: (id) => stops.push(stream.push(id)), close: () => stream[Symbol.dispose]?.() }
}

function checkCount(name: string, count: number, max: number): void {
  if (count > max)
    throw new FulmarError('LIMIT_EXCEEDED', `${name} must be at most ${max} long: got ${count}`)
}
