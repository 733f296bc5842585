/** Trajectories in dictionaries of turns: where they end, which group they belong to, what they earned. */

import { FulmarError } from '../core/index.js'
import { Tensor, TensorDict, type TensorKey } from '../tensor/index.js'

/** Keys of a dictionary of turns. */
export interface TrajectoryKeys {
  /** Identifies the group of a trajectory by its first turn: texts, or numbers. @default 'query' */
  readonly promptKey?: TensorKey
  /** Rewards, of any shape behind the batch. @default ['next', 'reward'] */
  readonly rewardsKey?: TensorKey
  /** Ends of trajectories. @default ['next', 'done'] */
  readonly doneKey?: TensorKey
  /** Destination of advantages, of the shape of the rewards. @default 'advantage' */
  readonly advantageKey?: TensorKey
}

/**
 * The trajectories of `[turns]`, or of `[trajectories, turns]`, in order.
 * @throws {FulmarError} `SHAPE_MISMATCH` for a batch of other dimensions; `INCOMPATIBLE` if the last turn does
 * not end its trajectory; `UNKNOWN_NAME` without the flags.
 */
export function trajectoriesOf(items: TensorDict, doneKey: TensorKey): TensorDict[] {
  const { length: numDims } = items.batchSize
  if (numDims === 2) return items.unbind(0).flatMap((row) => trajectoriesOf(row, doneKey))
  if (numDims !== 1)
    throw new FulmarError('SHAPE_MISMATCH', `items must have one or two batch dimensions: got ${numDims}`)
  const ends = Array.from(items.tensor(doneKey).data, Boolean).flatMap((done, at) => (done ? [at + 1] : []))
  const [size = 0] = items.batchSize
  if (ends.at(-1) !== size) {
    const detail = `items must hold whole trajectories, whose last turn is done: got ${size - (ends.at(-1) ?? 0)} turns behind the last end`
    throw new FulmarError('INCOMPATIBLE', detail)
  }
  return ends.map((end, at) => items.slice(ends[at - 1] ?? 0, end))
}

/** The group of a trajectory. @throws {FulmarError} `UNKNOWN_NAME` without the key. */
export function groupIdOf(trajectory: TensorDict, promptKey: TensorKey): string {
  const first = trajectory.index(0)
  const entry = first.get(promptKey)
  if (entry instanceof Tensor) return JSON.stringify(Array.from(entry.data, String))
  return JSON.stringify(first.value(promptKey))
}

/** The trajectory with its advantages, one for each reward. */
export function withAdvantages(
  trajectory: TensorDict,
  advantage: Float64Array,
  { rewardsKey, advantageKey }: Required<Pick<TrajectoryKeys, 'rewardsKey' | 'advantageKey'>>,
): TensorDict {
  const { shape } = trajectory.tensor(rewardsKey)
  return trajectory.clone().set(advantageKey, Tensor.from(Float32Array.from(advantage), { shape }))
}

/** The trajectories one behind the other. */
export function joined(trajectories: readonly TensorDict[]): TensorDict | undefined {
  return trajectories.length > 0 ? TensorDict.cat(trajectories) : undefined
}
