/** Goals that were achieved, in place of those that were not. */

import { checkGiven, FulmarError, Handle } from '../core/index.js'
import { type RawHindsight, type RawReplayBatch, raw } from '../native/index.js'
import { indices, type Tensor, withRawTensor } from '../tensor/tensor.js'
import { dictAround, pathOf, type TensorDict, type TensorKey, withRawDict } from '../tensor/tensor-dict.js'
import { ReplayBuffer, withRawBuffer } from './replay-buffer.js'
import type { ReplayBufferOptions } from './replay-buffer-options.js'
import type { TrajectoryOptions } from './slice-sampler.js'

/** Options of {@link HERReplayBuffer}. */
export interface HERReplayBufferOptions extends ReplayBufferOptions, TrajectoryOptions {
  /** The rewards, `[rows]` or in the shape of those stored, of rows that have new goals. */
  readonly rewardFn: (rows: TensorDict) => Tensor
  /** The part of a batch that is relabelled, its first rows, in `[0, 1]`. @default 0.8 */
  readonly herRatio?: number
  /** Whose achievement becomes the goal: this or a later step's of the episode, its last, any of its, any of the buffer. @default 'future' */
  readonly strategy?: 'future' | 'final' | 'episode' | 'random'
  /** The goal. @default 'desired_goal' */
  readonly goalKey?: TensorKey
  /** Achieved goal of a step, below `next`. @default 'achieved_goal' */
  readonly achievedGoalKey?: TensorKey
  /** The reward. @default ['next', 'reward'] */
  readonly rewardKey?: TensorKey
}

/**
 * A ring of goal-conditioned steps: part of each batch has goals that its episode achieved later, with their rewards
 * (Andrychowicz et al., <https://arxiv.org/abs/1707.01495>). A step's achievement is that of its `next`.
 *
 * @throws {FulmarError} `OUT_OF_RANGE` if the ratio is not in `[0, 1]`; `INCOMPATIBLE` if the storage has lanes or holds items;
 *   `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { HERReplayBuffer, LazyTensorStorage } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const buffer = new HERReplayBuffer({
 *   storage: new LazyTensorStorage(10),
 *   strategy: 'final',
 *   herRatio: 1,
 *   rewardFn: (rows) => Tensor.from(new Float32Array(rows.batchSize[0] ?? 0).fill(1)),
 * })
 * const steps = TensorDict.from({ desired_goal: Tensor.from([-1, -1]) }, { batchSize: [2] })
 * steps.set(['next', 'achieved_goal'], Tensor.from([5, 6]))
 * steps.set(['next', 'reward'], Tensor.from([0, 0]))
 * steps.set(['next', 'done'], Tensor.from(Uint8Array.of(0, 1), { dtype: 'bool' }))
 * buffer.extend(steps)
 * const batch = buffer.sample(2)
 * assert.deepEqual(batch.tensor('desired_goal').data, Float32Array.of(6, 6))
 * assert.deepEqual(batch.tensor(['next', 'reward']).data, Float32Array.of(1, 1))
 * ```
 */
export class HERReplayBuffer extends ReplayBuffer {
  /** @internal */
  static override readonly kind: string | undefined = undefined
  readonly #hindsight: Handle<RawHindsight>
  readonly #rewardFn: (rows: TensorDict) => Tensor

  constructor(options: HERReplayBufferOptions) {
    checkGiven('options', options)
    const { rewardFn, herRatio, strategy, goalKey, achievedGoalKey, rewardKey, trajKey, endKeys, ...rest } =
      options
    super(rest)
    if (typeof rewardFn !== 'function') {
      throw new FulmarError('MALFORMED', `rewardFn must be a function: got ${typeof rewardFn}`)
    }
    const trajectories = {
      ...(trajKey !== undefined && { idKey: pathOf(trajKey) }),
      ...(endKeys && { endKeys: endKeys.map(pathOf) }),
    }
    const keys = Object.entries({ goalKey, achievedGoalKey, rewardKey })
    const paths = keys.flatMap(([name, key]) => (key === undefined ? [] : [[name, pathOf(key)]]))
    const core = JSON.stringify({ herRatio, strategy, ...Object.fromEntries(paths), trajectories })
    const seed = rest.seed ?? 0
    this.#hindsight = new Handle('Hindsight', () =>
      withRawBuffer(this, (buffer) => raw.Hindsight.create(buffer, core, seed)),
    )
    this.#rewardFn = rewardFn
  }

  /** @internal */
  protected override write(items: TensorDict, prioritized: boolean): number[] {
    this.#hindsight.call((hindsight) => withRawDict(items, (dict) => hindsight.check(dict)))
    const rows = super.write(items, prioritized)
    this.#hindsight.call((hindsight) => withRawDict(items, (dict) => hindsight.extend(indices(rows), dict)))
    return rows
  }

  override add(): number {
    throw new FulmarError('INCOMPATIBLE', 'steps must be written in their order by extend: got one')
  }

  override clear(options: { keepWriteCount?: boolean } = {}): void {
    super.clear(options)
    this.#hindsight.call((hindsight) => hindsight.clear())
  }

  override [Symbol.dispose](): void {
    super[Symbol.dispose]()
    this.#hindsight.free()
  }

  /** @internal */
  protected override drawn(batch: RawReplayBatch): RawReplayBatch {
    const count = this.#hindsight.call((hindsight) =>
      withRawBuffer(this, (buffer) => hindsight.relabel(buffer, batch)),
    )
    if (count === 0) return batch
    const rewards = this.#rewardFn(dictAround(() => batch.items()).slice(0, count))
    this.#hindsight.call((hindsight) =>
      withRawTensor(rewards, (tensor) => hindsight.setRewards(batch, count, tensor)),
    )
    return batch
  }
}
