/** Bounds of trajectories in recorded steps. */

import { call, checkKnownKeys, FulmarError } from '../core/index.js'
import { raw } from '../native/index.js'
import type { Tensor } from '../tensor/index.js'

/** Options of {@link findStartStopTraj}: `trajectory` or `end` must be given. */
export interface FindStartStopTrajOptions {
  /** Ids of trajectories, `[time, lanes..]`. */
  readonly trajectory?: Tensor
  /** Flags of last steps, `[time, lanes..]`. */
  readonly end?: Tensor
  /** True if the steps are a full ring, whose first step follows the last. */
  readonly atCapacity: boolean
  /** The step that was written last, which ends a trajectory where the ring is full. @default none */
  readonly cursor?: number
}

/** A trajectory in a ring of steps: where it begins and ends, `[time, lanes..]`, and how many steps it has. */
export interface TrajectorySpan {
  readonly start: readonly number[]
  readonly stop: readonly number[]
  readonly length: number
}

/**
 * Returns the trajectories of steps, by lane, its last dimension first, then by their last step. O(steps);
 * buffers keep the same while they are written.
 * @throws {FulmarError} `INCOMPATIBLE` unless one of `trajectory` and `end` is given; `SHAPE_MISMATCH` without a dimension of time;
 *   `EMPTY` without a step; `OUT_OF_RANGE` for an invalid cursor; `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar'
 * import { findStartStopTraj } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const end = Tensor.from(Uint8Array.of(0, 1, 0, 0, 1, 0), { dtype: 'bool' })
 * const found = findStartStopTraj({ end, atCapacity: true, cursor: 2 })
 * assert.deepEqual(found, [
 *   { start: [5], stop: [1], length: 3 },
 *   { start: [2], stop: [2], length: 1 },
 *   { start: [3], stop: [4], length: 2 },
 * ])
 * ```
 */
export function findStartStopTraj(options: FindStartStopTrajOptions): TrajectorySpan[] {
  checkKnownKeys('options', options, ['trajectory', 'end', 'atCapacity', 'cursor'])
  const { trajectory, end, atCapacity, cursor } = options
  const given = trajectory ?? end
  if (!given || (trajectory && end)) {
    throw new FulmarError('INCOMPATIBLE', `trajectory or end must be given: got ${given ? 'both' : 'none'}`)
  }
  const [, ...lanes] = given.shape
  if (given.shape.length === 0) {
    throw new FulmarError('SHAPE_MISMATCH', 'steps must have a dimension of time: got a scalar')
  }
  const numLanes = lanes.reduce((product, lane) => product * lane, 1)
  const values = Float64Array.from(given.data as ArrayLike<number | bigint>, Number)
  const found = call(() =>
    trajectory
      ? raw.Trajectories.ofIds(values, numLanes, atCapacity, cursor)
      : raw.Trajectories.ofEnds(values, numLanes, atCapacity, cursor),
  )
  const spans = call(() => found.spans())
  found.free()
  const all = Array.from({ length: spans.length / 4 }, (_, at) => {
    const [lane = 0, start = 0, stop = 0, length = 0] = spans.subarray(at * 4, at * 4 + 4)
    const place = placeOf(lane, lanes)
    return { place, span: { start: [start, ...place], stop: [stop, ...place], length } }
  })
  return all.sort((left, right) => byLane(left.place, right.place)).map(({ span }) => span)
}

/** TorchRL's order of lanes: by their last dimension first. */
function byLane(left: readonly number[], right: readonly number[]): number {
  const differing = left.findLastIndex((at, dim) => at !== right[dim])
  return (left[differing] ?? 0) - (right[differing] ?? 0)
}

/** Returns the position of a lane in each dimension of the lanes. */
function placeOf(lane: number, lanes: readonly number[]): number[] {
  let left = lane
  const place = lanes.toReversed().map((length) => {
    const at = left % length
    left = Math.floor(left / length)
    return at
  })
  return place.toReversed()
}
