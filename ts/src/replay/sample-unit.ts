/** Units that a drawn row expands to. */

import { checkKnownKeys } from '../core/index.js'
import type { TensorKey } from '../tensor/index.js'
import { pathOf } from '../tensor/tensor-dict.js'

let describe: (unit: SampleUnit) => object

/**
 * Expands drawn rows to what a batch holds: give one of its classes to a {@link ReplayBuffer}.
 *
 * @example
 * ```ts
 * import { SampleUnit, Sequence, Transition } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * assert.ok(new Transition() instanceof SampleUnit && new Sequence({ length: 4 }) instanceof SampleUnit)
 * ```
 */
export abstract class SampleUnit {
  readonly #options: object

  /** @internal */
  protected constructor(options: object) {
    this.#options = options
  }

  static {
    describe = (unit) => unit.#options
  }
}

/** Returns the description from which the core builds the unit. */
export const unitOptions = (unit: SampleUnit): object => describe(unit)

/**
 * The row itself.
 *
 * @example
 * ```ts
 * import { LazyTensorStorage, ReplayBuffer, Transition } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(new ReplayBuffer({ storage: new LazyTensorStorage(4), sampleUnit: new Transition() }).length, 0)
 * ```
 */
export class Transition extends SampleUnit {
  constructor() {
    super({ kind: 'transition' })
  }
}

/** Options of {@link Sequence}. */
export interface SequenceOptions {
  /** Steps to learn from, the first of them the drawn row; from 1. */
  readonly length: number
  /**
   * Steps beyond the trajectory: its nearest step (`pad`); none, as the window moves back first (`stop`);
   * those of the next trajectory, up to the ends of the ring (`includeReset`).
   * @default 'pad'
   */
  readonly episodeBoundary?: 'pad' | 'stop' | 'includeReset'
  /** The flag of a trajectory's last step; `null`: only the ends of the ring bound windows. @default ['next', 'done'] */
  readonly doneKey?: TensorKey | null
  /** Steps before those to learn from, from 0. @default 0 */
  readonly burnIn?: number
  /** Steps behind them, from 0. @default 0 */
  readonly bootstrap?: number
  /** Distance of the steps, from 1. @default 1 */
  readonly dilation?: number
}

/**
 * A window of steps around each drawn row, `[rows * steps]` in all. Each step also has `sequence_id`,
 * `step_in_sequence`, `validity_mask`, `learning_mask` and `anchor_index`.
 *
 * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option; when a buffer is made `OUT_OF_RANGE` for a number out of range.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { LazyTensorStorage, ReplayBuffer, Sequence } from 'fulmar/replay'
 * import assert from 'node:assert/strict'
 *
 * const sampleUnit = new Sequence({ length: 2, doneKey: null })
 * const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(4), sampleUnit, seed: 1 })
 * buffer.extend(TensorDict.from({ id: Tensor.from([0, 1, 2, 3]) }, { batchSize: [4] }))
 * assert.equal(buffer.sample(3).batchSize[0], 6)
 * ```
 */
export class Sequence extends SampleUnit {
  constructor(options: SequenceOptions) {
    checkKnownKeys('options', options, [
      'length',
      'episodeBoundary',
      'doneKey',
      'burnIn',
      'bootstrap',
      'dilation',
    ])
    const { doneKey = ['next', 'done'], ...window } = options
    super({ kind: 'sequence', window, doneKey: doneKey && pathOf(doneKey) })
  }
}
