/** A model of a search that is a table. */

import { checkKnownKeys, Handle } from '../core/index.js'
import { type RawTableModel, raw } from '../native/index.js'
import { type Tensor, withRawTensor } from '../tensor/tensor.js'
import type { SearchRoot } from './search.js'

/** Columns of {@link TableModel}: S states, A actions. */
export interface TableModelColumns {
  /** The state that each action leads to, `[S, A]`, whole numbers below S. */
  readonly next: Tensor
  /** `[S, A]`. */
  readonly reward: Tensor
  /** `[S, A]`: 0 at an end, negative where the other player moves next. */
  readonly discount: Tensor
  /** Logits of the priors of each state's actions, `[S, A]`; `-Infinity` for one that is not allowed. */
  readonly logits: Tensor
  /** `[S]`. */
  readonly value: Tensor
}

/**
 * A model that is a table: a search over it runs whole in the core, its trees on all threads.
 *
 * @throws {FulmarError} `SHAPE_MISMATCH` if a shape differs; `OUT_OF_RANGE` if a next state is not a whole number below S.
 *
 * @example
 * ```ts
 * import { Tensor } from 'fulmar'
 * import { search, TableModel } from 'fulmar/tree'
 * import assert from 'node:assert/strict'
 *
 * const cells = (values: number[]) => Tensor.from(values, { shape: [2, 2] })
 * const model = new TableModel({
 *   next: Tensor.from(Int32Array.of(0, 1, 0, 1), { shape: [2, 2] }),
 *   reward: cells([0, 0, 1, 1]), // every action of state 1 is worth 1
 *   discount: cells([0.9, 0.9, 0.9, 0.9]),
 *   logits: cells([0, 0, 0, 0]),
 *   value: Tensor.from([0, 0]),
 * })
 * const { action } = await search({ root: model.root([0]), model, numSimulations: 50, policy: 'ucb', temperature: 0 })
 * assert.deepEqual(action, Uint32Array.of(1))
 * ```
 */
export class TableModel {
  /** Number of actions. */
  readonly numActions: number
  readonly #native: Handle<RawTableModel>

  constructor(columns: TableModelColumns) {
    checkKnownKeys('columns', columns, ['next', 'reward', 'discount', 'logits', 'value'])
    const { next, reward, discount, logits, value } = columns
    this.#native = new Handle('TableModel', () =>
      withRawTensor(next, (one) =>
        withRawTensor(reward, (two) =>
          withRawTensor(discount, (three) =>
            withRawTensor(logits, (four) =>
              withRawTensor(value, (five) => raw.TableModel.create(one, two, three, four, five)),
            ),
          ),
        ),
      ),
    )
    this.numActions = this.#native.call((model) => model.numActions())
  }

  /** Returns the roots of a search from states. @throws {FulmarError} `OUT_OF_RANGE` if there is no such state. */
  root(states: ArrayLike<number>): SearchRoot<number> {
    const columns = this.#native.call((model) => model.root(Uint32Array.from(states)))
    const count = states.length * this.numActions
    return { logits: columns.subarray(0, count), value: columns.subarray(count), states: Array.from(states) }
  }

  /** @internal */
  use<R>(body: (model: RawTableModel) => R): R {
    return this.#native.call(body)
  }

  [Symbol.dispose](): void {
    this.#native.free()
  }
}
