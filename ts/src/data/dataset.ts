/**
 * Endless streams of samples whose position can be saved, so that a resumed run continues with the same
 * samples.
 */

import { checkKnownKeys, FulmarError, field, Rng } from '../core/index.js'

/** Position of a dataset: plain JSON, for a checkpoint. */
export interface DatasetState {
  /** Number of samples taken so far. */
  readonly position: number
}

/**
 * An endless stream of samples.
 *
 * @example
 * ```ts
 * import { type Dataset, listDataset } from 'fulmar/task'
 * import assert from 'node:assert/strict'
 *
 * const dataset: Dataset<string> = listDataset({ items: ['a', 'b'] })
 * assert.deepEqual([dataset.next(), dataset.next(), dataset.next()], ['a', 'b', 'a'])
 * const state = dataset.stateDict()
 * assert.equal(dataset.next(), 'b')
 * dataset.loadStateDict(state)
 * assert.equal(dataset.next(), 'b')
 * ```
 */
export interface Dataset<Sample> {
  /** Returns the next sample. */
  next(): Sample
  /** Returns the position of the stream. */
  stateDict(): DatasetState
  /**
   * Restores the position of `state`.
   * @throws {FulmarError} `MALFORMED` or `UNKNOWN_NAME` if it is not such a state.
   */
  loadStateDict(state: unknown): void
}

/** Options of {@link generatedDataset}. */
export interface GeneratedDatasetOptions<Sample> {
  /** Seed, a non-negative safe integer. */
  readonly seed: number
  /** Name of the stream: two names with one seed give independent samples. */
  readonly name: string
  /** Makes one sample from its own stream of random numbers; the sample must not depend on anything else. */
  readonly make: (rng: Rng) => Sample
}

/**
 * Generates samples from random numbers. Sample `i` is a pure function of `seed`, `name` and `i`.
 *
 * @example
 * ```ts
 * import { generatedDataset } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const dice = () => generatedDataset({ seed: 7, name: 'dice', make: (rng) => 1 + rng.below(6) })
 * const [first, second] = [dice(), dice()]
 * assert.equal(first.next(), second.next())
 * ```
 */
export function generatedDataset<Sample>(options: GeneratedDatasetOptions<Sample>): Dataset<Sample> {
  checkKnownKeys('options', options, ['seed', 'name', 'make'], ['seed', 'name', 'make'])
  const { seed, name, make } = options
  const stream = Rng.fromSeed(seed).stream(name)
  return positionedDataset((position) => {
    using rng = stream.fork(position)
    return make(rng)
  })
}

/** Options of {@link listDataset}. */
export interface ListDatasetOptions<Sample> {
  /** Items, at least one. Copied, so later changes of the list have no effect. */
  readonly items: Iterable<Sample>
  /**
   * Seed of a new random order of the items for each pass; without it the order is kept.
   * @default no shuffling
   */
  readonly shuffleSeed?: number
}

/**
 * Repeats the items of a list.
 * @throws {FulmarError} `EMPTY` if there is no item.
 *
 * @example
 * ```ts
 * import { listDataset } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const dataset = listDataset({ items: [1, 2, 3], shuffleSeed: 7 })
 * const pass = [dataset.next(), dataset.next(), dataset.next()]
 * assert.deepEqual(pass.sort(), [1, 2, 3])
 * assert.throws(() => listDataset({ items: [] }), { code: 'EMPTY' })
 * ```
 */
export function listDataset<Sample>(options: ListDatasetOptions<Sample>): Dataset<Sample> {
  checkKnownKeys('options', options, ['items', 'shuffleSeed'], ['items'])
  const { items: iterable, shuffleSeed } = options
  const items = [...iterable]
  if (items.length === 0) throw new FulmarError('EMPTY', 'items must hold a sample: they are empty')
  const stream = shuffleSeed === undefined ? undefined : Rng.fromSeed(shuffleSeed).stream('listDataset')
  let order: { readonly pass: number; readonly indices: Uint32Array } | undefined
  return positionedDataset((position) => {
    const pass = Math.floor(position / items.length)
    const place = position % items.length
    if (stream && order?.pass !== pass) order = { pass, indices: permutationOf(stream, pass, items.length) }
    return itemAt(items, order?.indices[place] ?? place)
  })
}

/**
 * Creates an endless stream whose sample number `position` is `sampleAt(position)`.
 *
 * @example
 * ```ts
 * import { positionedDataset } from 'fulmar/task'
 * import assert from 'node:assert/strict'
 *
 * const squares = positionedDataset((position) => position ** 2)
 * squares.loadStateDict({ position: 3 })
 * assert.equal(squares.next(), 9)
 * assert.deepEqual(squares.stateDict(), { position: 4 })
 * ```
 */
export function positionedDataset<Sample>(sampleAt: (position: number) => Sample): Dataset<Sample> {
  let position = 0
  return {
    next: () => sampleAt(position++),
    stateDict: () => ({ position }),
    loadStateDict: (state) => {
      position = STATE.read('state', state).position
    },
  }
}

const STATE = field.section({ position: field.integer({ min: 0 }) })

function permutationOf(stream: Rng, pass: number, length: number): Uint32Array {
  using rng = stream.fork(pass)
  return rng.permutation(length)
}

/** Returns the item at `index`; unlike `items[index]` it separates an `undefined` item from a missing one. */
function itemAt<Sample>(items: readonly Sample[], index: number): Sample {
  for (const item of items.slice(index, index + 1)) return item
  throw new FulmarError('OUT_OF_RANGE', `index must be below ${items.length}: got ${index}`)
}
