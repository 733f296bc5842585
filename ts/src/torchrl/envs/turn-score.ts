/** Scores of a batch in which one that fails harms no other. */

import { messageOf } from '../../core/index.js'
import { Binary, type Composite, NonTensor } from '../../spec/index.js'
import { Tensor, type TensorDict } from '../../tensor/index.js'
import { setEach } from '../data/dict-text.js'

/** Scores each response by `score`; an error becomes a reason without a score. */
export function scoreEach<T>(
  responses: readonly string[],
  score: (response: string, at: number) => T,
): { readonly scores: (T | undefined)[]; readonly reasons: (string | null)[] } {
  const reasons: (string | null)[] = []
  const scores = responses.map((response, at) => {
    try {
      const scored = score(response, at)
      reasons.push(null)
      return scored
    } catch (error) {
      reasons.push(messageOf(error))
      return undefined
    }
  })
  return { scores, reasons }
}

/** Puts down which responses were scored, `scored`, and of the others why not, `unscored`. */
export function setScored(next: TensorDict, reasons: readonly (string | null)[]): void {
  const bits = Uint8Array.from(reasons, (reason) => Number(reason === null))
  next.set('scored', Tensor.from(bits, { shape: [...next.batchSize, 1, 1], dtype: 'bool' }))
  setEach(next, 'unscored', reasons)
}

/** The specs of {@link setScored}. */
export function specScored(rewardSpec: Composite, shape: readonly number[]): void {
  rewardSpec.set('scored', new Binary(1, { shape: [...shape, 1, 1], dtype: 'bool' }))
  rewardSpec.set('unscored', new NonTensor({ shape, batched: true, example: null }))
}
