/**
 * Metrics as they are measured (a key, a reducer, values) and as they are logged (a flat map of numbers).
 *
 * Many rollouts and groups each contribute values to one key; {@link reduceMetrics} turns all contributions into one
 * number per key and statistic, as if all values had been in one list.
 */

import { checkGiven, FulmarError } from '../core/index.js'

/**
 * Reduction of the values of one key to numbers: `key/mean`, `key/max`, `key/min`, `key/sum`, `key/std`
 * (population),
 * all five for `summary`, or the single value under the bare `key` for `single`.
 */
export type Reducer = 'mean' | 'max' | 'min' | 'sum' | 'std' | 'summary' | 'single'

/** A measurement, or a list of measurements of one thing. */
export interface Metric {
  /** Such as `rollout/output_tokens`. */
  readonly key: string
  /** Reduction of the values. */
  readonly reducer: Reducer
  /** May be empty: then this contribution changes nothing. */
  readonly values: readonly number[]
}

/** Result of {@link reduceMetrics}. */
export interface ReducedMetrics {
  /** One number per logged key, in the order of first appearance. */
  readonly values: Readonly<Record<string, number>>
  /** Number of NaN values that were left out, by key. */
  readonly droppedNaN: Readonly<Record<string, number>>
}

/**
 * Makes a {@link Metric} of one value or of many.
 *
 * @example
 * ```ts
 * import { metric } from 'fulmar/train'
 * import assert from 'node:assert/strict'
 *
 * assert.deepEqual(metric('loss', 'mean', 2), { key: 'loss', reducer: 'mean', values: [2] })
 * ```
 */
export function metric(key: string, reducer: Reducer, values: number | readonly number[]): Metric {
  return { key, reducer, values: typeof values === 'number' ? [values] : values }
}

/**
 * Reduces all contributions. A key whose contributions are all empty is left out. Costs O(number of values).
 *
 * @throws {FulmarError} `INCOMPATIBLE` if two metrics would be logged under one name, or if `single` has two values.
 *
 * @example
 * ```ts
 * import { metric, reduceMetrics } from 'fulmar/train'
 * import assert from 'node:assert/strict'
 *
 * const { values } = reduceMetrics([metric('turns', 'mean', [1, 2]), metric('turns', 'mean', 6), metric('turns', 'max', [])])
 * assert.deepEqual(values, { 'turns/mean': 3 })
 * ```
 */
export function reduceMetrics(metrics: readonly Metric[]): ReducedMetrics {
  checkGiven('metrics', metrics)
  const gathered = new Map<string, { key: string; reducer: Reducer; values: number[]; numNaN: number }>()
  for (const { key, reducer, values } of metrics) {
    const id = `${reducer} ${key}`
    const entry = gathered.get(id) ?? { key, reducer, values: [], numNaN: 0 }
    gathered.set(id, entry)
    for (const value of values) {
      if (Number.isNaN(value)) entry.numNaN += 1
      else entry.values.push(value)
    }
  }
  const reduced = new Map<string, number>()
  const dropped = new Map<string, number>()
  for (const { key, reducer, values, numNaN } of gathered.values()) {
    if (numNaN > 0) dropped.set(key, (dropped.get(key) ?? 0) + numNaN)
    if (values.length === 0) continue
    for (const [name, value] of reduce(key, reducer, values)) {
      if (reduced.has(name))
        throw new FulmarError('INCOMPATIBLE', `metric name must be logged once: got ${name} twice`)
      reduced.set(name, value)
    }
  }
  return { values: Object.fromEntries(reduced), droppedNaN: Object.fromEntries(dropped) }
}

function reduce(key: string, reducer: Reducer, values: readonly number[]): [string, number][] {
  if (reducer === 'summary') {
    return (['mean', 'max', 'min', 'std', 'sum'] as const).map((name) => [
      `${key}/${name}`,
      STATISTICS[name](values),
    ])
  }
  if (reducer === 'single') {
    const [value, ...rest] = values
    if (value === undefined || rest.length > 0) {
      throw new FulmarError('INCOMPATIBLE', `metric ${key} must have a single value: got ${values.length}`)
    }
    return [[key, value]]
  }
  return [[`${key}/${reducer}`, STATISTICS[reducer](values)]]
}

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0)
const mean = (values: readonly number[]): number => sum(values) / values.length

const STATISTICS = {
  mean,
  sum,
  max: (values: readonly number[]) =>
    values.reduce((most, value) => Math.max(most, value), Number.NEGATIVE_INFINITY),
  min: (values: readonly number[]) =>
    values.reduce((least, value) => Math.min(least, value), Number.POSITIVE_INFINITY),
  std: (values: readonly number[]) => {
    const centre = mean(values)
    return Math.sqrt(mean(values.map((value) => (value - centre) ** 2)))
  },
}
