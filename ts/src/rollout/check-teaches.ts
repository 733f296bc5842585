/** Check that a batch of rollouts has a training signal. */

import { FulmarError } from '../core/index.js'
import type { Rollout } from './rollout.js'

/**
 * Fails if no rollout has a turn, or none has a score, as later batches would be no better.
 * @throws {FulmarError} `USER_CODE` if no rollout sampled anything; if none could be scored, the reason:
 * `NON_FINITE`, `TIMEOUT`, `USER_CODE`, or `EMPTY` if the functions declined.
 */
export function checkTeaches(rollouts: readonly Rollout[]): void {
  const first = rollouts[0]
  if (first === undefined) return
  if (rollouts.every(({ turns }) => turns.length === 0)) {
    const why = first.cause ? `${first.cause.stage}: ${first.cause.message}` : first.status
    throw new FulmarError(
      'USER_CODE',
      `a rollout must sample something: all ${rollouts.length} are empty (${why})`,
    )
  }
  if (rollouts.some(({ reward }) => reward !== null)) return
  const [cause] = Object.values(first.unscored)
  const code = cause === undefined || cause.code === 'DECLINED' ? 'EMPTY' : cause.code
  throw new FulmarError(code, `${cause?.message ?? 'no score'} (and no rollout of the batch could be scored)`)
}
