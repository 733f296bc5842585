/** Frozen reference policies. */

import { describeValue, FulmarError } from '../core/index.js'
import type { Decoder, TokenBatch } from '../model/index.js'

/**
 * A separate decoder; or `'base'`: the weights without the adapter in training, which need no second copy.
 */
export type Reference = Decoder | 'base'

/**
 * @internal Checks a reference of `decoder`.
 * @throws {FulmarError} `MALFORMED` for another value; `EMPTY` for `'base'` if the decoder has no adapter:
 * the reference would change with it.
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

/** @internal Computes the log-probs of the masked tokens of `batch`. Shape `[T]`. */
export async function referenceLogProb(
  reference: Reference,
  decoder: Decoder,
  batch: TokenBatch,
): Promise<Float32Array> {
  const scores =
    reference === 'base' ? await decoder.score(batch, { adapter: false }) : await reference.score(batch)
  return scores.logProb
}
