/** Sequences of steps cut into trajectories. */

import { call, checkKnownKeys } from '../core/index.js'
import { type RawTrajectorySplit, raw } from '../native/index.js'
import type { TensorDict, TensorKey } from '../tensor/index.js'
import { dictAround, withRawDict } from '../tensor/tensor-dict.js'
import { plainOptions } from './transform.js'

/** Options of {@link splitTrajectories}. */
export interface SplitTrajectoriesOptions {
  /** The dictionary that gets `mask` and `traj_ids`. @default 'collector' */
  readonly prefix?: TensorKey
  /**
   * Integers that differ from a trajectory to the next.
   * @default `traj_ids` of `prefix`, if it is there and `doneKey` is not given
   */
  readonly trajectoryKey?: TensorKey
  /** Key of the end of a trajectory, below `next`, if there are no trajectory ids. @default 'done' */
  readonly doneKey?: TensorKey
}

/**
 * Splits `steps`, whose last batch dimension is time, into trajectories: `[trajectories, longest]`, with zeros after shorter ones.
 * Below `prefix` are the bools `mask`, true at steps, and, if it split by ends, the integers `traj_ids`.
 * @throws {FulmarError} `UNKNOWN_NAME` if there are neither integers nor ends; `SHAPE_MISMATCH` without a batch dimension;
 *   `EMPTY` without steps; `INCOMPATIBLE` if an entry is not a tensor; `LIMIT_EXCEEDED` if padding would take too much.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { splitTrajectories } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * const steps = TensorDict.from({ observation: Tensor.from([1, 2, 3]) }, { batchSize: [3] })
 *   .set(['next', 'done'], Tensor.from(Uint8Array.of(0, 1, 0), { dtype: 'bool' }))
 * const split = splitTrajectories(steps)
 * assert.deepEqual(split.batchSize, [2, 2])
 * assert.deepEqual(split.tensor('observation').data, Float32Array.of(1, 2, 3, 0))
 * assert.deepEqual(split.tensor(['collector', 'mask']).data, Uint8Array.of(1, 1, 1, 0))
 * ```
 */
export function splitTrajectories(steps: TensorDict, options: SplitTrajectoriesOptions = {}): TensorDict {
  return cut(options, (split) => withRawDict(steps, (dict) => split.padded(dict)))
}

/**
 * {@link splitTrajectories} without padding: as many elements as there are trajectories, each tensor ragged, one row a
 * trajectory.
 * @throws {FulmarError} The errors of {@link splitTrajectories}.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { splitTrajectoriesRagged } from 'fulmar/transform'
 * import assert from 'node:assert/strict'
 *
 * const steps = TensorDict.from({ observation: Tensor.from([1, 2, 3]) }, { batchSize: [3] })
 *   .set(['collector', 'traj_ids'], Tensor.from(Int32Array.of(5, 5, 2)))
 * const split = splitTrajectoriesRagged(steps)
 * assert.deepEqual(split.ragged('observation').offsets, Uint32Array.of(0, 2, 3))
 * ```
 */
export function splitTrajectoriesRagged(
  steps: TensorDict,
  options: SplitTrajectoriesOptions = {},
): TensorDict {
  return cut(options, (split) => withRawDict(steps, (dict) => split.ragged(dict)))
}

function cut(
  options: SplitTrajectoriesOptions,
  body: (split: RawTrajectorySplit) => ReturnType<RawTrajectorySplit['padded']>,
): TensorDict {
  checkKnownKeys('options', options, ['prefix', 'trajectoryKey', 'doneKey'])
  const split = call(() => raw.TrajectorySplit.create(JSON.stringify(plainOptions(options))))
  try {
    return dictAround(() => body(split))
  } finally {
    split.free()
  }
}
