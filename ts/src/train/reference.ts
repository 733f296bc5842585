/** The frozen policy that a policy is kept near. */

import { describeValue, FulmarError } from '../core/index.js'
import type { Decoder, TokenBatch } from '../model/index.js'

/** A decoder of its own; or `'base'`: the weights under the adapter that is trained, which need no second copy. */
export type Reference = Decoder | 'base'

/**
 * @internal Refuses what cannot be a reference of `decoder`.
 * @throws {FulmarError} `MALFORMED` for another value; `EMPTY` for `'base'` where the decoder has no adapter: the reference would move with it.
 */
export function checkReference(reference: Reference | undefined, decoder: Decoder): void {
  if (reference === undefined || (typeof reference === 'object' && reference !== null)) return
  if (reference !== 'base') {
    throw new FulmarError(
      'MALFORMED',
      `reference must be a Decoder or 'base': got ${describeValue(reference)}`,
    )
  }
  if (!decoder.hasAdapter) {
    const detail =
      "reference must be a Decoder where all weights are trained: got 'base', and the decoder has no adapter"
    throw new FulmarError('EMPTY', detail)
  }
}

/** @internal The log-probs of the masked tokens of `batch`. Shape `[T]`. */
export async function referenceLogProb(
  reference: Reference,
  decoder: Decoder,
  batch: TokenBatch,
): Promise<Float32Array> {
  const scores =
    reference === 'base' ? await decoder.score(batch, { adapter: false }) : await reference.score(batch)
  return scores.logProb
}
