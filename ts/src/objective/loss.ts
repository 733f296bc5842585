/** Shared parts of losses: batches for the core, results, denominators, KL penalties. */

import { call, checkKnownKeys } from '../core/index.js'
import { type RawLossColumns, type RawLossOutput, raw } from '../native/index.js'
import { checkArray } from './argument.js'

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

/** Bounds of the sequences, and the mask of their trained tokens. */
interface Layout {
  readonly mask: Uint8Array
  readonly offsets: Uint32Array
}

/** Columns of a loss: required ones, optional ones, and other keys of its batch. */
interface ColumnNames {
  readonly needed: readonly string[]
  readonly optional?: readonly string[]
  readonly others?: readonly string[]
}

/**
 * Calls the core with the columns of `batch`.
 * @throws {FulmarError} `UNKNOWN_NAME` for an unknown key, with the nearest one; `MALFORMED` for an array of
 * another type; and errors of the core.
 */
export function withColumns<R>(
  batch: Layout,
  { needed, optional = [], others = [] }: ColumnNames,
  ask: (columns: RawLossColumns) => R,
): R {
  checkKnownKeys('batch', batch, [...needed, ...optional, ...others, 'mask', 'offsets'])
  for (const name of needed) checkArray(batch, name, 'Float32Array')
  for (const name of optional) checkArray(batch, name, 'Float32Array', true)
  checkArray(batch, 'mask', 'Uint8Array')
  checkArray(batch, 'offsets', 'Uint32Array')
  const columns = call(() => raw.LossColumns.create(batch.mask, batch.offsets))
  try {
    for (const name of [...needed, ...optional]) {
      const values: Float32Array | undefined = Reflect.get(batch, name)
      if (values !== undefined) columns.set(name, values)
    }
    return call(() => ask(columns))
  } finally {
    columns.free()
  }
}

/** Returns metrics and their denominators, by name. */
export function metricsOf(metricsJson: string): Pick<LossResult, 'metrics' | 'denominators'> {
  const entries: { name: string; value: number; denominator: number }[] = JSON.parse(metricsJson)
  return {
    metrics: Object.fromEntries(entries.map(({ name, value }) => [name, value])),
    denominators: Object.fromEntries(entries.map(({ name, denominator }) => [name, denominator])),
  }
}

/** Converts the core's output to a result. */
export function lossResult({ loss, metricsJson, gradLogProb, gradEntropy }: RawLossOutput): LossResult {
  return { loss, ...metricsOf(metricsJson), gradLogProb, ...(gradEntropy && { gradEntropy }) }
}

/** Converts the core's output to a result with a value for each sequence. */
export function sequenceLossResult(
  output: RawLossOutput,
): LossResult & { readonly sequenceLoss: Float64Array } {
  return { ...lossResult(output), sequenceLoss: output.sequenceLoss ?? new Float64Array() }
}
