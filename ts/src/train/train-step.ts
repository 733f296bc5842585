/** One optimiser step: forward, loss, backward, update. */

import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import type { Decoder, ForwardPassOptions, Optimizer, Scores, TokenBatch } from '../model/index.js'
import type { LossResult, Objective, ObjectiveResult } from '../objective/index.js'

/** Options of {@link trainStep}. */
export interface TrainStepOptions {
  /** Decoder whose weights are trained. */
  readonly decoder: Decoder
  /** Optimizer of the weights. */
  readonly optimizer: Optimizer
  /**
   * Sequences; the loss gets the log-probs of the masked tokens. The gradients of a list are accumulated for
   * one update.
   */
  readonly batch: TokenBatch | readonly TokenBatch[]
  /**
   * Optional inputs of the loss besides log-probs and entropies.
   * @default none
   */
  readonly scores?: ForwardPassOptions
  /**
   * Computes the loss of a batch and its gradient with respect to the log-probs; `index` is the position in
   * the list.
   */
  readonly loss: (scores: Scores, index: number) => ObjectiveResult
  /**
   * Learning rate, instead of the optimizer's.
   * @default the optimizer's learningRate
   */
  readonly learningRate?: number
  /**
   * Maximum L2 norm of the gradient; larger ones are scaled down.
   * @default no clipping
   */
  readonly maxGradNorm?: number
  /**
   * Awaited before the update, so that readers of the weights can finish.
   * @default no wait
   */
  readonly beforeUpdate?: () => Promise<unknown>
  /** Stops before the forward pass, and before the update: the weights are then unchanged. */
  readonly signal?: AbortSignal
}

/** Result of one step. */
export interface TrainStepResult {
  /** The loss before the update: the sum over the batches. */
  readonly loss: number
  /**
   * Metrics of the loss by name, over all batches: losses and counts are summed, maxima compared, means
   * combined.
   */
  readonly metrics: Readonly<Record<string, number>>
  /** L2 norm of the gradient before clipping. */
  readonly gradientNorm: number
}

/**
 * Takes one step without blocking the event loop.
 *
 * @throws {FulmarError} `ABORTED` if the signal fires; `NON_FINITE` if loss or gradient are not finite, with
 * the weights unchanged; errors of the decoder for the batch.
 *
 * @example
 * ```ts
 * import { AdamW, Decoder, SFTLoss } from 'fulmar'
 * import { trainStep } from 'fulmar/train'
 * import assert from 'node:assert/strict'
 *
 * const shape = { model_type: 'llama', vocab_size: 5, hidden_size: 4, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 2 } as const
 * using decoder = Decoder.fromSeed(shape, { seed: 1 })
 * using optimizer = new AdamW(decoder, { learningRate: 0.01 })
 * const [offsets, mask] = [Uint32Array.of(0, 2), Uint8Array.of(0, 1)]
 * const batch = { ids: Uint32Array.of(1, 2), offsets, mask }
 * const sft = new SFTLoss()
 * const loss = ({ logProb }: { logProb: Float32Array }) => sft.forward({ logProb, offsets, mask })
 * const step = () => trainStep({ decoder, optimizer, batch, loss })
 * const first = await step()
 * const second = await step()
 * assert.ok(second.loss < first.loss)
 * ```
 */
export async function trainStep(options: TrainStepOptions): Promise<TrainStepResult> {
  checkKnownKeys(
    'options',
    options,
    [
      'decoder',
      'optimizer',
      'batch',
      'scores',
      'loss',
      'learningRate',
      'maxGradNorm',
      'beforeUpdate',
      'signal',
    ],
    ['decoder', 'optimizer', 'batch', 'loss'],
  )
  const { decoder, optimizer, batch, scores, loss, learningRate, maxGradNorm, beforeUpdate, signal } = options
  const results: LossResult[] = []
  const batches: readonly TokenBatch[] = 'ids' in batch ? [batch] : batch
  for (const [index, one] of batches.entries()) {
    checkSignal(signal)
    const result = wholeResult(loss(await decoder.forward(one, scores), index))
    if (!Number.isFinite(result.loss))
      throw new FulmarError('NON_FINITE', `loss must be finite: got ${result.loss}`)
    checkSignal(signal)
    await decoder.backward(result.gradLogProb, result.gradEntropy)
    results.push(result)
  }
  await beforeUpdate?.()
  const { gradientNorm } = await optimizer.step({
    ...(learningRate !== undefined && { learningRate }),
    ...(maxGradNorm !== undefined && { maxGradNorm }),
  })
  const total = results.reduce((sum, result) => sum + result.loss, 0)
  return { loss: total, metrics: joinMetrics(results), gradientNorm }
}

/**
 * Fills in the fields that a custom loss may leave out.
 * @throws {FulmarError} `MALFORMED` for another value.
 */
export function wholeResult(result: ObjectiveResult): LossResult {
  if (typeof result !== 'object' || result === null || typeof result.loss !== 'number')
    throw new FulmarError('MALFORMED', `loss must return { loss, gradLogProb }: got ${describeValue(result)}`)
  return { metrics: {}, denominators: {}, ...result }
}

/** Rejects objects without `forward`. @throws {FulmarError} `MALFORMED`. */
export function checkObjective(loss: Objective<never>): void {
  if (typeof loss === 'object' && loss !== null && typeof loss.forward === 'function') return
  const detail = `options.loss must be an object with a method forward: got ${describeValue(loss)}`
  throw new FulmarError('MALFORMED', detail)
}

/** Returns the metrics of one batch unchanged; combines those of several as if they were one. */
function joinMetrics(results: readonly LossResult[]): Readonly<Record<string, number>> {
  const [first] = results
  if (first === undefined || results.length === 1) return first?.metrics ?? {}
  const names = new Set(results.flatMap(({ metrics }) => Object.keys(metrics)))
  return Object.fromEntries([...names].map((name) => [name, joinMetric(name, results)]))
}

function joinMetric(name: string, results: readonly LossResult[]): number {
  const parts = results.filter(({ metrics }) => name in metrics)
  const values = parts.map(({ metrics }) => metrics[name] ?? 0)
  if (name.endsWith('Max'))
    return values.reduce((most, value) => Math.max(most, value), Number.NEGATIVE_INFINITY)
  if (name.startsWith('num') || name.endsWith('Loss')) return values.reduce((sum, value) => sum + value, 0)
  const counts = parts.map(({ denominators }) => denominators[name] ?? 1)
  const total = counts.reduce((sum, count) => sum + count, 0)
  return values.reduce((sum, value, at) => sum + value * (counts[at] ?? 0), 0) / Math.max(1, total)
}

/** @throws {FulmarError} `ABORTED` if the signal has fired. */
export function checkSignal(signal: AbortSignal | undefined): void {
  if (!signal?.aborted) return
  throw new FulmarError('ABORTED', 'signal must not fire while training: got an abort', {
    cause: signal.reason,
  })
}
