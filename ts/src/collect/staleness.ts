/**
 * Limits on the age of the weights of trained tokens.
 *
 * ```text
 * P groups a step, S steps off policy:  B = (S + 1) P slots,  W = max(1, floor(f B)) groups of window
 * age = version of the trainer when a group is consumed - oldest version that sampled it  <=  floor((B + W - 2) / P)
 * ```
 *
 * A slot is taken when a group is admitted and given back once the generators serve the weights that it trained. The
 * group that is admitted last therefore sees at most `B - 1` older groups consumed first and `W - 1` that overtake it.
 */

import { checkKnownKeys, FulmarError } from '../core/index.js'
import type { OverStale } from './over-stale.js'

/** A running group, as a {@link StalenessPolicy} sees it. */
export interface WorkEntry {
  /** Counts the admitted groups from 0. */
  readonly sequence: number
  /** `waiting` for a worker, `inflight` with one, `finalized` when its result is there. */
  readonly state: 'waiting' | 'inflight' | 'finalized'
  /** Policy version when a worker took it; undefined while it waits. */
  readonly version: number
  /** Counts the finished groups from 0; of no meaning before the group has finished. */
  readonly finishOrder: number
}

/** Decides how many groups run at once, which finished one is trained next, and which are too old. */
export interface StalenessPolicy {
  /** Such as `windowedFifo`. */
  readonly name: string
  /** Slots: groups from admission until the weights that they trained are served. */
  readonly capacity: number
  /** Maximum age of a trained token; `Infinity` without a promise. */
  readonly maxAge: number
  /**
   * Treatment of samples that are older than `maxAge` when they would be trained.
   * @default none: such a sample ends the run
   */
  readonly overStale?: OverStale
  /** The place in `entries` of the group to consume, -1 for none yet. `entries` are in the order of admission. */
  select(entries: readonly WorkEntry[]): number
  /**
   * Places of groups that are too old to be consumed once the generators serve `version`: those in flight are
   * cancelled, finished ones dropped.
   */
  evict?(entries: readonly WorkEntry[], version: number): readonly number[]
}

/** Common options of the staleness policies. */
export interface StalenessOptions {
  /** Groups of one training step (`P`), >= 1. */
  readonly groupsPerStep: number
  /**
   * Number of steps that the generators run ahead (`S`), >= 0; 0 is synchronous.
   * @default 3
   */
  readonly offPolicySteps?: number
}

/** Options of {@link readyFirst} and {@link capacityRule}. */
export interface OverStaleOptions extends StalenessOptions {
  /** Treatment of samples that are older than `offPolicySteps`. */
  readonly overStale?: OverStale
}

/** Options of {@link windowedFifo}. */
export interface WindowedFifoOptions extends StalenessOptions {
  /**
   * Share of the slots (`f`) within which a finished group may overtake slower ones, in (0, 1]; `null` for
   * strict order.
   * @default 0.3
   */
  readonly windowFraction?: number | null
}

/** A {@link StalenessPolicy} with a window. */
export interface WindowedFifo extends StalenessPolicy {
  /** Number of groups, from the oldest running one, that may be consumed (`W`). */
  readonly window: number
  /** Warnings about the options, such as a window of less than one group. */
  readonly warnings: readonly string[]
}

/**
 * Consumes the oldest finished group that is at most `W - 1` positions after the oldest running one: it
 * overtakes stragglers, and the age stays bounded.
 * @throws {FulmarError} `OUT_OF_RANGE` if an option is outside its range.
 *
 * @example
 * ```ts
 * import { windowedFifo } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const { capacity, window, maxAge } = windowedFifo({ groupsPerStep: 8, offPolicySteps: 3 })
 * assert.deepEqual({ capacity, window, maxAge }, { capacity: 32, window: 9, maxAge: 4 })
 * const synchronous = windowedFifo({ groupsPerStep: 8, offPolicySteps: 0, windowFraction: null })
 * assert.deepEqual([synchronous.window, synchronous.maxAge], [1, 0])
 * ```
 */
export function windowedFifo(options: WindowedFifoOptions): WindowedFifo {
  checkKnownKeys('options', options, ['windowFraction', 'groupsPerStep', 'offPolicySteps'], ['groupsPerStep'])
  const { windowFraction = 0.3 } = options
  const { groupsPerStep, capacity } = slotsOf(options)
  if (windowFraction !== null && !(windowFraction > 0 && windowFraction <= 1)) {
    throw new FulmarError('OUT_OF_RANGE', `windowFraction must be in (0, 1]: got ${windowFraction}`)
  }
  const wanted = windowFraction === null ? 1 : windowFraction * capacity
  const window = Math.max(1, Math.floor(wanted))
  return {
    name: 'windowedFifo',
    capacity,
    window,
    maxAge: Math.floor((capacity + window - 2) / groupsPerStep),
    warnings:
      wanted < 1
        ? [`windowFraction must give a window of at least one group: got ${wanted}, and 1 is used`]
        : [],
    select: (entries) => {
      const end = (entries[0]?.sequence ?? 0) + window
      return entries.findIndex(({ state, sequence }) => state === 'finalized' && sequence < end)
    },
  }
}

/**
 * {@link windowedFifo} with a window of one: groups are consumed in the order in which they were admitted.
 *
 * @example
 * ```ts
 * import { strictFifo } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(strictFifo({ groupsPerStep: 3, offPolicySteps: 2 }).maxAge, 2)
 * ```
 */
export function strictFifo(options: StalenessOptions): WindowedFifo {
  checkKnownKeys('options', options, ['groupsPerStep', 'offPolicySteps'], ['groupsPerStep'])
  return { ...windowedFifo({ ...options, windowFraction: null }), name: 'strictFifo' }
}

/**
 * Bounds the sum alone: `consumed + under way <= (S + step) P`. Finished groups are consumed as they finish, so a long
 * one may get older than `S` steps. By default it is trained all the same, and its age is measured, not promised.
 *
 * @example
 * ```ts
 * import { capacityRule } from 'fulmar/collect'
 * import assert from 'node:assert/strict'
 *
 * const { capacity, maxAge } = capacityRule({ groupsPerStep: 4, offPolicySteps: 1 })
 * assert.deepEqual([capacity, maxAge], [8, Number.POSITIVE_INFINITY])
 * assert.equal(capacityRule({ groupsPerStep: 4, offPolicySteps: 1, overStale: 'maskPrefix' }).maxAge, 1)
 * ```
 */
export function capacityRule(options: OverStaleOptions): StalenessPolicy {
  checkKnownKeys('options', options, ['overStale', 'groupsPerStep', 'offPolicySteps'], ['groupsPerStep'])
  return {
    name: 'capacityRule',
    ...boundOf({ overStale: 'continue', ...options }),
    select: (entries) => leastOf(entries, ({ finishOrder }) => finishOrder),
  }
}

/**
 * Consumes the finished group with the oldest weights first. Rollouts that got older than `S` steps are withheld by
 * default: they do not train, but their rewards stay in the baseline of their group.
 *
 * @example
 * ```ts
 * import { readyFirst } from 'fulmar/collect'
 * import assert from 'node:assert/strict'
 *
 * const { maxAge, overStale } = readyFirst({ groupsPerStep: 4, offPolicySteps: 1 })
 * assert.deepEqual([maxAge, overStale], [1, 'withhold'])
 * const policy = readyFirst({ groupsPerStep: 4, offPolicySteps: 1, overStale: 'cancel' })
 * const entry = { sequence: 0, state: 'inflight', version: 3, finishOrder: 0 } as const
 * assert.deepEqual(policy.evict?.([entry], 4), [])
 * assert.deepEqual(policy.evict?.([entry], 5), [0])
 * ```
 */
export function readyFirst(options: OverStaleOptions): StalenessPolicy {
  checkKnownKeys('options', options, ['overStale', 'groupsPerStep', 'offPolicySteps'], ['groupsPerStep'])
  return {
    name: 'readyFirst',
    ...boundOf({ overStale: 'withhold', ...options }),
    select: (entries) => leastOf(entries, ({ version }) => version),
  }
}

const OVER_STALE: readonly OverStale[] = ['continue', 'maskPrefix', 'withhold', 'cancel']

function boundOf(
  options: StalenessOptions & { readonly overStale: OverStale },
): Pick<StalenessPolicy, 'capacity' | 'maxAge' | 'overStale' | 'evict'> {
  const { capacity, offPolicySteps } = slotsOf(options)
  const { overStale } = options
  if (!OVER_STALE.includes(overStale)) {
    const detail = `overStale must be one of ${OVER_STALE.join(', ')}: got ${String(overStale)}`
    throw new FulmarError('UNKNOWN_NAME', detail)
  }
  if (overStale !== 'cancel') {
    return {
      capacity,
      maxAge: overStale === 'continue' ? Number.POSITIVE_INFINITY : offPolicySteps,
      overStale,
    }
  }
  const evict = (entries: readonly WorkEntry[], version: number) =>
    entries.flatMap((entry, place) =>
      entry.state !== 'waiting' && version - entry.version > offPolicySteps ? [place] : [],
    )
  return { capacity, maxAge: offPolicySteps, overStale, evict }
}

function slotsOf({ groupsPerStep, offPolicySteps = 3 }: StalenessOptions): {
  groupsPerStep: number
  offPolicySteps: number
  capacity: number
} {
  if (!Number.isSafeInteger(groupsPerStep) || groupsPerStep < 1)
    throw new FulmarError('OUT_OF_RANGE', `groupsPerStep must be a positive integer: got ${groupsPerStep}`)
  if (!Number.isSafeInteger(offPolicySteps) || offPolicySteps < 0) {
    const detail = `offPolicySteps must be a non-negative integer: got ${offPolicySteps}`
    throw new FulmarError('OUT_OF_RANGE', detail)
  }
  return { groupsPerStep, offPolicySteps, capacity: (offPolicySteps + 1) * groupsPerStep }
}

/** The place of the finished entry with the least `rank`, the oldest of equals; -1 for none. */
function leastOf(entries: readonly WorkEntry[], rank: (entry: WorkEntry) => number): number {
  let [best, least] = [-1, Number.POSITIVE_INFINITY]
  entries.forEach((entry, place) => {
    if (entry.state !== 'finalized' || rank(entry) >= least) return
    best = place
    least = rank(entry)
  })
  return best
}
