/** Rollouts of numbered states. */

import { Tensor, TensorDict } from '../../src/tensor/index.js'

/** Steps of a state, an action and the next state. */
export function rollout(...steps: [number, number, number][]): TensorDict {
  const column = (at: 0 | 1 | 2) => Tensor.from(steps.map((step) => step[at]))
  return TensorDict.from({ observation: column(0), action: column(1) }, { batchSize: [steps.length] }).set(
    ['next', 'observation'],
    column(2),
  )
}

/** One step from a state. */
export const state = (number: number): TensorDict => rollout([number, 0, 0]).index(0)
