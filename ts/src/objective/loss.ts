/** Shared parts of losses: the loss in the core, checks of batches, results, denominators, KL penalties. */

import { checkKnownKeys, Handle } from '../core/index.js'
import type { RawLossOutput, RawOwner } from '../native/index.js'
import { type ArrayName, checkArray } from './argument.js'

/** Value, metrics and gradient of one loss over one batch. */
export interface LossResult {
  /** Sum of all terms, which the gradients belong to. */
  readonly loss: number
  /** Means over the kept tokens, maxima and counts, by name; 0 over nothing. */
  readonly metrics: Readonly<Record<string, number>>
  /**
   * Number of tokens in each mean (1 for terms of the loss, maxima and counts), to combine means of batches
   * exactly.
   */
  readonly denominators: Readonly<Record<string, number>>
  /** `[T]` gradient with respect to each log-probability; exactly 0 where nothing is trained. A new array. */
  readonly gradLogProb: Float32Array
  /** `[T]` gradient with respect to each entropy, if the loss has an entropy term. A new array. */
  readonly gradEntropy?: Float32Array
}

/** Result of any loss: a {@link LossResult}, whose logged fields a custom loss may leave out. */
export type ObjectiveResult = Omit<LossResult, 'metrics' | 'denominators'> &
  Partial<Pick<LossResult, 'metrics' | 'denominators'>>

/**
 * A loss for the recipes: one of this package, or any object with such a `forward`. `Batch` is the input of
 * the recipe's loss, such as {@link LossBatch} for GRPO.
 *
 * @example
 * ```ts
 * import type { LossBatch, Objective } from 'fulmar/objective'
 * import assert from 'node:assert/strict'
 *
 * const reinforce: Objective<LossBatch> = {
 *   forward({ logProb, advantage, mask, offsets }) {
 *     const gradLogProb = new Float32Array(mask.length)
 *     for (let s = 0; s + 1 < offsets.length; s++)
 *       for (let t = offsets[s]; t < offsets[s + 1]; t++) gradLogProb[t] = -mask[t] * advantage[s]
 *     const loss = gradLogProb.reduce((sum, gradient, t) => sum + gradient * logProb[t], 0)
 *     return { loss, gradLogProb }
 *   },
 * }
 * const [logProb, mask, offsets] = [Float32Array.of(-1, -2), Uint8Array.of(0, 1), Uint32Array.of(0, 2)]
 * const { loss } = reinforce.forward({ logProb, oldLogProb: logProb, advantage: Float32Array.of(0.5), mask, offsets })
 * assert.equal(loss, 1)
 * ```
 */
export interface Objective<Batch> {
  /**
   * Computes value and gradient over `batch`, whose arrays it must not keep or change. A property and no method, so that
   * the compiler refuses a loss that reads more columns than `Batch` has.
   */
  readonly forward: (batch: Batch) => ObjectiveResult
}

/**
 * Divisor of sums over tokens: the trained tokens of the batch; mean over sequences of their token means;
 * sequences times a length; or the number of tokens or of sequences (each counted by its mean) of a whole
 * optimizer step, so that micro-batches add up to one batch.
 */
export type Normalization =
  | 'tokenMean'
  | 'sequenceMean'
  | { readonly fixedLength: number }
  | { readonly globalTokens: number }
  | { readonly globalSequences: number }

/** With `d = log p_ref - log p`: k1 is `-d`, k2 is `d^2 / 2`, k3 is `e^d - 1 - d`. */
export type KlEstimator = 'k1' | 'k2' | 'k3'

/** A KL term of a loss, over the tokens and with the denominator of the loss. */
export interface KlPenalty {
  /** Estimator of the divergence. @default 'k3' */
  readonly estimator?: KlEstimator
  /** Factor of the term, at least 0. @default none: the term is left out */
  readonly coefficient?: number
  /**
   * If true, multiplies the estimate by the ratio of the policy term, with its gradient: unbiased for tokens
   * of an older policy if it is the ratio of the token. If the loss uses the ratio of a sequence, that one
   * multiplies, as in TRL.
   * @default false
   */
  readonly importanceWeighted?: boolean
}

/** Keys of {@link KlPenalty}. */
export const KL_PENALTY_KEYS = { estimator: true, coefficient: true, importanceWeighted: true } as const

/** Arrays of a batch by the names of their fields. */
export interface Columns {
  readonly needed: Readonly<Record<string, ArrayName>>
  readonly optional?: Readonly<Record<string, ArrayName>>
}

/** Fields of the layout of a ragged batch. */
export const LAYOUT = { mask: 'Uint8Array', offsets: 'Uint32Array' } as const

/**
 * Checks that `batch` has arrays of the right types and no other fields.
 * @throws {FulmarError} `UNKNOWN_NAME` for an unknown key, with the nearest one; `MALFORMED` for an array of
 * another type.
 */
export function checkColumns(batch: object, { needed, optional = {} }: Columns): void {
  checkKnownKeys('batch', batch, [...Object.keys(needed), ...Object.keys(optional)])
  for (const [name, type] of Object.entries(needed)) checkArray(batch, name, type)
  for (const [name, type] of Object.entries(optional)) checkArray(batch, name, type, true)
}

/** A loss of the core with its options, which it read once. */
export class CoreLoss<T extends RawOwner> extends Handle<T> {
  #joined = ''
  #names: readonly string[] = []

  /** Returns the metrics of a result and their denominators, by name. */
  metrics({
    metricNames,
    metrics,
  }: Pick<RawLossOutput, 'metricNames' | 'metrics'>): Pick<LossResult, 'metrics' | 'denominators'> {
    if (metricNames !== this.#joined) {
      this.#joined = metricNames
      this.#names = metricNames.split(',')
    }
    const values: Record<string, number> = {}
    const denominators: Record<string, number> = {}
    this.#names.forEach((name, at) => {
      values[name] = metrics[2 * at] ?? Number.NaN
      denominators[name] = metrics[2 * at + 1] ?? Number.NaN
    })
    return { metrics: values, denominators }
  }

  /** Computes the result of a batch. */
  result(forward: (loss: T) => RawLossOutput): LossResult {
    return this.#result(this.call(forward))
  }

  /** Computes the result of a batch with a value for each sequence. */
  sequenceResult(forward: (loss: T) => RawLossOutput): LossResult & { readonly sequenceLoss: Float64Array } {
    const output = this.call(forward)
    return { ...this.#result(output), sequenceLoss: output.sequenceLoss ?? new Float64Array() }
  }

  #result(output: RawLossOutput): LossResult {
    const { loss, gradLogProb, gradEntropy } = output
    return { loss, ...this.metrics(output), gradLogProb, ...(gradEntropy && { gradEntropy }) }
  }
}
