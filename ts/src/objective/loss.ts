/** What losses share: how a batch reaches the core, their result, their denominators, their KL penalty. */

import { call, checkKnownKeys } from '../core/index.js'
import { type RawLossColumns, type RawLossOutput, raw } from '../native/index.js'
import { checkArray } from './argument.js'

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

/** What a loss gives: a {@link LossResult}, of which a loss of the caller's own may leave out what is only logged. */
export type ObjectiveResult = Omit<LossResult, 'metrics' | 'denominators'> &
  Partial<Pick<LossResult, 'metrics' | 'denominators'>>

/**
 * What the recipes take for a loss: those of this package, or any object with such a `forward`. `Batch` is what the loss of the recipe
 * reads, such as {@link LossBatch} of GRPO.
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
  /** Value and gradient over `batch`, whose arrays it must not keep or change. */
  forward(batch: Batch): ObjectiveResult
}

/**
 * What sums over tokens are divided by: the trained tokens of the batch; mean over sequences of their token means;
 * sequences times a length; or a number of tokens or of sequences (of which each counts by its mean) that the caller counts
 * over a whole optimiser step, so that micro-batches add up to one batch.
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
  /** @default 'k3' */
  readonly estimator?: KlEstimator
  /** The factor, at least 0. @default none: the term is left out */
  readonly coefficient?: number
  /**
   * Multiplies the estimate by the ratio that pushes the token, its gradient included: unbiased for tokens of an older policy where it
   * is that of the token; where the loss has the ratio of a sequence, it is that one, as in TRL. @default false
   */
  readonly importanceWeighted?: boolean
}

/** The keys of {@link KlPenalty}. */
export const KL_PENALTY_KEYS = { estimator: true, coefficient: true, importanceWeighted: true } as const

/** Where sequences end, and which of their tokens are trained. */
interface Layout {
  readonly mask: Uint8Array
  readonly offsets: Uint32Array
}

/** The columns of a loss: those that must be there, those that may, and other keys of its batch. */
interface ColumnNames {
  readonly needed: readonly string[]
  readonly optional?: readonly string[]
  readonly others?: readonly string[]
}

/**
 * Asks the core something about `batch`.
 * @throws {FulmarError} `UNKNOWN_NAME` for an unknown key, with the nearest one; `MALFORMED` for an array of another type; and
 * what the core throws.
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

/** Numbers to log and what they are over, by name. */
export function metricsOf(metricsJson: string): Pick<LossResult, 'metrics' | 'denominators'> {
  const entries: { name: string; value: number; denominator: number }[] = JSON.parse(metricsJson)
  return {
    metrics: Object.fromEntries(entries.map(({ name, value }) => [name, value])),
    denominators: Object.fromEntries(entries.map(({ name, denominator }) => [name, denominator])),
  }
}

/** The core's output as a result. */
export function lossResult({ loss, metricsJson, gradLogProb, gradEntropy }: RawLossOutput): LossResult {
  return { loss, ...metricsOf(metricsJson), gradLogProb, ...(gradEntropy && { gradEntropy }) }
}

/** The same with a value for each sequence. */
export function sequenceLossResult(
  output: RawLossOutput,
): LossResult & { readonly sequenceLoss: Float64Array } {
  return { ...lossResult(output), sequenceLoss: output.sequenceLoss ?? new Float64Array() }
}
