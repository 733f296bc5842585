/** Assignment of sequences to rows of bounded length, and of work to workers. */

import { checkGiven, checkKnownKeys, checkTypedArray, Handle } from '../core/index.js'
import { type RawPackPlan, type RawStreamPacker, raw } from '../native/index.js'

/** Groups of items: group `g` is `items[offsets[g]..offsets[g + 1]]`. */
export interface Groups {
  /** Indices of items, each once. */
  readonly items: Uint32Array
  /** Bounds of the groups, from 0. Shape `[G + 1]`. */
  readonly offsets: Uint32Array
}

/** Options of {@link pack}. */
export interface PackOptions {
  /** Tokens of a row, >= 1. */
  readonly capacity: number
  /**
   * Choice of the row of a sequence, longest sequences first: the row with the least sufficient space (of
   * several, the last one used), or the first row with space.
   * @default 'bestFit'
   */
  readonly strategy?: 'bestFit' | 'firstFit'
}

/** Options of {@link StreamPacker}. */
export interface StreamPackerOptions {
  /** Tokens of a row, >= 1. */
  readonly capacity: number
  /** Rows that wait for more, >= 1: the more, the fuller they get. */
  readonly maxOpen: number
}

/**
 * Packs sequences of these lengths into rows: best or first fit decreasing, at most 11/9 of the fewest rows possible and one. Best fit takes
 * 25 to 40 ns a sequence. Rows are in the order in which they were opened, sequences in the order in which they were placed.
 * @throws {FulmarError} `OUT_OF_RANGE` for a capacity of 0 or a sequence that is longer than it; `LIMIT_EXCEEDED` for a capacity over
 * 4,194,304 or more than 16,777,216 sequences; `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts
 * import { pack } from 'fulmar/model'
 * import assert from 'node:assert/strict'
 *
 * const { items, offsets } = pack(Uint32Array.of(3, 5, 2, 4, 6), { capacity: 8 })
 * assert.deepEqual([...items], [4, 2, 1, 0, 3]) // 6 + 2, 5 + 3, 4
 * assert.deepEqual([...offsets], [0, 2, 4, 5])
 * ```
 */
export function pack(lengths: Uint32Array, options: PackOptions): Groups {
  checkKnownKeys('options', options, ['capacity', 'strategy'])
  const { capacity, strategy } = options
  const json = strategy === undefined ? undefined : JSON.stringify(strategy)
  return groups(() => raw.PackPlan.pack(lengths, capacity, json))
}

/**
 * Bounds of the sequences of group `index` in a row that holds them one behind the other, as attention over packed rows takes them
 * (`cu_seqlens`). Shape `[n + 1]`, from 0; `[0]` behind the last group.
 *
 * @example
 * ```ts
 * import { cuSeqlens, pack } from 'fulmar/model'
 * import assert from 'node:assert/strict'
 *
 * const lengths = Uint32Array.of(3, 5, 2, 4, 6)
 * assert.deepEqual([...cuSeqlens(pack(lengths, { capacity: 8 }), 0, lengths)], [0, 6, 8])
 * ```
 */
export function cuSeqlens(groups: Groups, index: number, lengths: Uint32Array): Uint32Array {
  checkGiven('groups', groups)
  const { items, offsets } = groups
  checkTypedArray('groups.items', items, Uint32Array)
  checkTypedArray('groups.offsets', offsets, Uint32Array)
  checkTypedArray('lengths', lengths, Uint32Array)
  const group = items.subarray(offsets[index] ?? 0, offsets[index + 1] ?? offsets[index] ?? 0)
  const bounds = new Uint32Array(group.length + 1)
  group.forEach((item, at) => {
    bounds[at + 1] = (bounds[at] ?? 0) + (lengths[item] ?? 0)
  })
  return bounds
}

/**
 * Assigns items to `numWorkers` workers with nearly equal sums of `costs`: the most expensive first, each to
 * the worker with the smallest sum so far (at most 4/3 of the optimal largest sum). {@link Decoder.flops}
 * returns the cost of a sequence.
 * @throws {FulmarError} `OUT_OF_RANGE` without workers, or for a cost that is negative or not finite;
 * `LIMIT_EXCEEDED` over 65,536 workers.
 *
 * @example
 * ```ts
 * import { balance } from 'fulmar/model'
 * import assert from 'node:assert/strict'
 *
 * const { items, offsets } = balance(Float64Array.of(4, 9, 5, 1), 2)
 * assert.deepEqual([...items.subarray(offsets[0], offsets[1])], [1, 3]) // 9 + 1
 * assert.deepEqual([...items.subarray(offsets[1], offsets[2])], [2, 0]) // 5 + 4
 * ```
 */
export function balance(costs: Float64Array, numWorkers: number): Groups {
  return groups(() => raw.PackPlan.balance(costs, numWorkers))
}

/**
 * Packs sequences as they come: best fit into a few open rows. A row leaves once it is full, or as the fullest when a sequence fits into none.
 * Holds native memory: dispose it, or declare it with `using`.
 *
 * @example
 * ```ts
 * import { StreamPacker } from 'fulmar/model'
 * import assert from 'node:assert/strict'
 *
 * using packer = new StreamPacker({ capacity: 8, maxOpen: 2 })
 * assert.equal(packer.push(0, 5), undefined)
 * assert.equal(packer.push(1, 6), undefined)
 * assert.deepEqual([...(packer.push(2, 3) ?? [])], [0, 2]) // full
 * assert.deepEqual([...packer.flush().items], [1])
 * ```
 */
export class StreamPacker {
  readonly #native: Handle<RawStreamPacker>

  /** @throws {FulmarError} `OUT_OF_RANGE` for a capacity or `maxOpen` of 0; `LIMIT_EXCEEDED` for `maxOpen` over 65,536. */
  constructor(options: StreamPackerOptions) {
    checkKnownKeys('options', options, ['capacity', 'maxOpen'])
    const { capacity, maxOpen } = options
    this.#native = new Handle('StreamPacker', () => raw.StreamPacker.create(capacity, maxOpen))
  }

  /**
   * Takes the sequence `item` of `length` tokens; the items of the row that leaves, if one does.
   * @throws {FulmarError} `OUT_OF_RANGE` for a sequence longer than the capacity, which is then not taken.
   */
  push(item: number, length: number): Uint32Array | undefined {
    const row = this.#native.call((packer) => packer.push(item, length))
    return row.length > 0 ? row : undefined
  }

  /** The rows that are still open, in the order they were opened in; the packer is then empty. */
  flush(): Groups {
    return groups(() => this.#native.call((packer) => packer.flush()))
  }

  /** Gives the native memory back. */
  [Symbol.dispose](): void {
    this.#native.free()
  }
}

function groups(make: () => RawPackPlan): Groups {
  const plan = new Handle('PackPlan', make)
  try {
    return plan.call((native) => ({ items: native.items(), offsets: native.offsets() }))
  } finally {
    plan.free()
  }
}
