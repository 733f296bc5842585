/** Status of a rollout. */

import { checkGiven } from '../core/index.js'

/** Every status: `ongoing`, `completed`, four truncations, four errors. */
export const ROLLOUT_STATUSES = [
  'ongoing',
  'completed',
  'truncated_length',
  'truncated_prompt_too_long',
  'truncated_max_turns',
  'truncated_total_tokens',
  'error_parse',
  'error_timeout',
  'error_abort',
  'error',
] as const

/** `ongoing`, or how a rollout ended. */
export type RolloutStatus = (typeof ROLLOUT_STATUSES)[number]

/**
 * Returns true if a limit ended the rollout: tokens of one completion, tokens of a prompt, turns, or sampled
 * tokens of all turns.
 *
 * @example
 * ```ts
 * import { isTruncated, ROLLOUT_STATUSES } from 'fulmar/rollout'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(ROLLOUT_STATUSES.filter(isTruncated).length, 4)
 * ```
 */
export function isTruncated(status: RolloutStatus): boolean {
  checkGiven('status', status)
  return status.startsWith('truncated')
}

/**
 * Returns true if a failure ended the rollout.
 *
 * @example
 * ```ts
 * import { isError, ROLLOUT_STATUSES } from 'fulmar/rollout'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(ROLLOUT_STATUSES.filter(isError).length, 4)
 * ```
 */
export function isError(status: RolloutStatus): boolean {
  checkGiven('status', status)
  return status.startsWith('error')
}

/**
 * Returns true if the rollout has ended.
 *
 * @example
 * ```ts
 * import { isTerminal, ROLLOUT_STATUSES } from 'fulmar/rollout'
 * import assert from 'node:assert/strict'
 *
 * assert.deepEqual(ROLLOUT_STATUSES.filter((status) => !isTerminal(status)), ['ongoing'])
 * ```
 */
export function isTerminal(status: RolloutStatus): boolean {
  return status !== 'ongoing'
}
