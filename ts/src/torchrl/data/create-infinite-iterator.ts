/** Endless passes over a source. */

import { checkGiven, describeValue, FulmarError } from '../../core/index.js'

/**
 * Yields the items of a source in passes without end. A pass asks the source for a new iterator, so that a generator, which has one pass
 * alone, is refused in the second.
 * @throws {FulmarError} `EMPTY`, at the item that is asked for, if a pass has no item; `MALFORMED` if the source cannot be iterated.
 *
 * @example
 * ```ts
 * import { createInfiniteIterator } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const numbers = createInfiniteIterator([1, 2])
 * assert.deepEqual([numbers.next().value, numbers.next().value, numbers.next().value], [1, 2, 1])
 * assert.throws(() => createInfiniteIterator([]).next(), { code: 'EMPTY' })
 * ```
 */
export function createInfiniteIterator<T>(source: Iterable<T>): Generator<T, never, undefined>
export function createInfiniteIterator<T>(source: AsyncIterable<T>): AsyncGenerator<T, never, undefined>
export function createInfiniteIterator<T>(
  source: Iterable<T> | AsyncIterable<T>,
): Generator<T, never, undefined> | AsyncGenerator<T, never, undefined> {
  checkGiven('source', source)
  if (Symbol.asyncIterator in Object(source)) return asyncPasses(source as AsyncIterable<T>)
  if (Symbol.iterator in Object(source)) return passes(source as Iterable<T>)
  throw new FulmarError('MALFORMED', `source must be iterable: got ${describeValue(source)}`)
}

function* passes<T>(source: Iterable<T>): Generator<T, never, undefined> {
  for (let pass = 1; ; pass++) {
    let isEmpty = true
    for (const item of source) {
      isEmpty = false
      yield item
    }
    if (isEmpty) throw emptyPass(pass)
  }
}

async function* asyncPasses<T>(source: AsyncIterable<T>): AsyncGenerator<T, never, undefined> {
  for (let pass = 1; ; pass++) {
    let isEmpty = true
    for await (const item of source) {
      isEmpty = false
      yield item
    }
    if (isEmpty) throw emptyPass(pass)
  }
}

function emptyPass(pass: number): FulmarError {
  const detail = pass === 1 ? 'it is empty' : `pass ${pass} is empty (give what can be iterated again)`
  return new FulmarError('EMPTY', `source must have an item in each pass: ${detail}`)
}
