/** Filters of rollouts. */

import { RequestRefusal } from './request-guard.js'
import type { RolloutSummary } from './rollout-line.js'

/** A filter; what is absent lets everything through. */
export interface RolloutFilter {
  readonly step?: number
  readonly group?: number
  readonly status?: string
  /** Smallest reward; unscored rollouts do not pass. */
  readonly rewardMin?: number
  /** Largest reward; unscored rollouts do not pass. */
  readonly rewardMax?: number
  /** Only those with a reward, or without one. */
  readonly scored?: boolean
  /** Text in any message, in any letter case. */
  readonly text?: string
}

/** Names of the fields, which are those of a query. */
export const FILTER_NAMES = ['step', 'group', 'status', 'rewardMin', 'rewardMax', 'scored', 'text'] as const

type FilterName = (typeof FILTER_NAMES)[number]

/** Reads a filter; an empty field is an absent one. @throws {RequestRefusal} 400 for a text in a field of numbers. */
export function filterOf(query: ReadonlyMap<string, readonly string[]>): RolloutFilter {
  const text = (name: FilterName): string | undefined => query.get(name)?.[0] || undefined
  const number = (name: FilterName): Partial<Record<FilterName, number>> => {
    const given = text(name)
    if (given === undefined) return {}
    const value = Number(given)
    if (!Number.isFinite(value))
      throw new RequestRefusal(
        400,
        'invalid_parameter',
        `${name} must be a number: got ${given.slice(0, 64)}`,
      )
    return { [name]: value }
  }
  const [status, scored, words] = [text('status'), text('scored'), text('text')]
  if (scored !== undefined && scored !== 'true' && scored !== 'false')
    throw new RequestRefusal(
      400,
      'invalid_parameter',
      `scored must be true or false: got ${scored.slice(0, 64)}`,
    )
  return {
    ...{ ...number('step'), ...number('group'), ...number('rewardMin'), ...number('rewardMax') },
    ...(scored !== undefined && { scored: scored === 'true' }),
    ...(status !== undefined && { status }),
    ...(words !== undefined && { text: words }),
  } as RolloutFilter
}

/** Returns the positions of the rollouts that pass, in their order. */
export function filtered(rollouts: readonly RolloutSummary[], filter: RolloutFilter): number[] {
  const { step, group, status, rewardMin, rewardMax, scored } = filter
  const text = filter.text?.toLowerCase()
  const passes = (one: RolloutSummary) =>
    (step === undefined || one.step === step) &&
    (group === undefined || one.groupId === group) &&
    (status === undefined || one.status === status) &&
    (rewardMin === undefined || (one.reward !== null && one.reward >= rewardMin)) &&
    (rewardMax === undefined || (one.reward !== null && one.reward <= rewardMax)) &&
    (scored === undefined || (one.reward !== null) === scored) &&
    (text === undefined || one.text.includes(text))
  const found: number[] = []
  for (const [index, rollout] of rollouts.entries()) if (passes(rollout)) found.push(index)
  return found
}
