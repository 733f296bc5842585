/** What losses share: their result, their denominators, their KL penalty. */

import type { RawLossOutput } from '../native/index.js'

/** Value, numbers to log, and gradient of one loss over one batch. */
export interface LossResult {
  /** All terms together: what the gradient belongs to. */
  readonly loss: number
  /** Means over the kept tokens, maxima and counts, by name; 0 where there was nothing to look at. */
  readonly metrics: Readonly<Record<string, number>>
  /** How many tokens each mean is over (1 for terms of the loss, maxima and counts): joins means of batches exactly. */
  readonly denominators: Readonly<Record<string, number>>
  /** `[T]` derivative of the loss by each log-probability; exactly 0 where nothing is trained. A new array. */
  readonly gradLogProb: Float32Array
  /** `[T]` derivative by each entropy, where the loss holds an entropy term. A new array. */
  readonly gradEntropy?: Float32Array
}

/**
 * What sums over tokens are divided by: the trained tokens of the batch; mean over sequences of their token means;
 * sequences times a length; or a number of tokens that the caller counts over a whole optimiser step, so that
 * micro-batches add up to one batch.
 */
export type Normalization =
  | 'tokenMean'
  | 'sequenceMean'
  | { readonly fixedLength: number }
  | { readonly globalTokens: number }

/** With `d = log p_ref - log p`: k1 is `-d`, k2 is `d^2 / 2`, k3 is `e^d - 1 - d`. */
export type KlEstimator = 'k1' | 'k2' | 'k3'

/** A KL term of a loss, over the tokens and with the denominator of the loss. */
export interface KlPenalty {
  /** @default 'k3' */
  readonly estimator?: KlEstimator
  /** The factor, at least 0. @default 0 */
  readonly coefficient?: number
  /** Multiplies the estimate by the ratio of the policies: unbiased for tokens of an older policy. @default false */
  readonly importanceWeighted?: boolean
}

/** The keys of {@link KlPenalty}. */
export const KL_PENALTY_KEYS = { estimator: true, coefficient: true, importanceWeighted: true } as const

/** The core's output as a result. */
export function lossResult(output: RawLossOutput): LossResult {
  const { loss, metricsJson, gradLogProb, gradEntropy } = output
  const entries: { name: string; value: number; denominator: number }[] = JSON.parse(metricsJson)
  return {
    loss,
    metrics: Object.fromEntries(entries.map(({ name, value }) => [name, value])),
    denominators: Object.fromEntries(entries.map(({ name, denominator }) => [name, denominator])),
    gradLogProb,
    ...(gradEntropy && { gradEntropy }),
  }
}
