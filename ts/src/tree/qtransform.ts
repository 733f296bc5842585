/** Scales of values in the choice of an action. */

import { checkKnownKeys } from '../core/index.js'

/** A scale of values; made by {@link qtransformByMinMax} and its siblings. */
export type QTransform =
  | { readonly kind: 'byMinMax'; readonly minValue: number; readonly maxValue: number }
  | { readonly kind: 'byParentAndSiblings'; readonly epsilon?: number }
  | ({ readonly kind: 'completedByMixValue' } & CompletedByMixValueOptions)

/** Options of {@link qtransformCompletedByMixValue}. */
export interface CompletedByMixValueOptions {
  /** Factor of all values. @default 0.1 */
  readonly valueScale?: number
  /** Added to the visits of the most visited action. @default 50 */
  readonly maxvisitInit?: number
  /** If true, values are scaled to [0, 1] first. @default true */
  readonly rescaleValues?: boolean
  /** If false, an action without visits has the node's own value. @default true */
  readonly useMixedValue?: boolean
  /** Least difference that is divided by. @default 1e-8 */
  readonly epsilon?: number
}

/**
 * `(q - minValue) / (maxValue - minValue)`; an action without visits has `minValue`.
 *
 * @example
 * ```ts
 * import { qtransformByMinMax } from 'fulmar/tree'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(qtransformByMinMax({ minValue: -1, maxValue: 1 }).kind, 'byMinMax')
 * ```
 */
export function qtransformByMinMax(options: {
  readonly minValue: number
  readonly maxValue: number
}): QTransform {
  checkKnownKeys('options', options, ['minValue', 'maxValue'])
  return { kind: 'byMinMax', minValue: options.minValue, maxValue: options.maxValue }
}

/**
 * From the least to the largest of the values of a node and its visited actions; an action without visits has the least. The default of
 * `'muzero'`.
 *
 * @example
 * ```ts
 * import { qtransformByParentAndSiblings } from 'fulmar/tree'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(qtransformByParentAndSiblings().kind, 'byParentAndSiblings')
 * ```
 */
export function qtransformByParentAndSiblings(options: { readonly epsilon?: number } = {}): QTransform {
  checkKnownKeys('options', options, ['epsilon'])
  return { kind: 'byParentAndSiblings', ...options }
}

/**
 * `valueScale * (maxvisitInit + most visits) * q`, where an action without visits has the mean of the node's own value and those of visited
 * actions by their priors. The default of `'gumbel'`.
 *
 * @example
 * ```ts
 * import { qtransformCompletedByMixValue } from 'fulmar/tree'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(qtransformCompletedByMixValue({ valueScale: 1 }).kind, 'completedByMixValue')
 * ```
 */
export function qtransformCompletedByMixValue(options: CompletedByMixValueOptions = {}): QTransform {
  const known = ['valueScale', 'maxvisitInit', 'rescaleValues', 'useMixedValue', 'epsilon']
  checkKnownKeys('options', options, known)
  return { kind: 'completedByMixValue', ...options }
}
