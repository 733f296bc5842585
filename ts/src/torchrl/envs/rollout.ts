/** A policy and an environment taking turns. */

import { checkKnownKeys, FulmarError } from '../../core/index.js'
import { type Clock, systemClock } from '../../telemetry/index.js'
import { type LazyStack, lazyStack, type TensorDict } from '../../tensor/index.js'
import { type DictPolicyLike, dictPolicyOf, type EnvBase } from './env.js'
import { flagsAt } from './flag.js'
import { checkOneDimension, TurnLoop } from './turn-loop.js'

/** Options of {@link rollout}. */
export interface RolloutOptions {
  /** At most so many steps; an integer from 1. */
  readonly maxSteps: number
  /** Input of resets. @default nothing */
  readonly dict?: TensorDict
  /**
   * If true, the rollout ends as soon as one element is done. Else it runs for all `maxSteps`, and elements
   * that are done are reset; the batch must then have one dimension. Elements whose first prompt is already
   * done are reset either way.
   * @default true
   */
  readonly breakWhenAnyDone?: boolean
  /**
   * Milliseconds for one result of policy or environment, above 0. With it the elements of a batch of one dimension run separately and
   * concurrently. An element that times out or throws is truncated alone: its rewards are NaN, and `['next', 'error']` is
   * `{ status, message }`, `null` for the others. Results must have one shape, so they are not padded.
   * @default no deadline, and one call for the batch
   */
  readonly timeoutMs?: number
  /** @default systemClock */
  readonly clock?: Clock
  /** Stops with `ABORTED`: between turns, or during them where there is a `timeoutMs`. */
  readonly signal?: AbortSignal
}

/**
 * The steps of a rollout, along a last batch dimension that is time: each the dictionary with the action, and what came of it at `next`.
 * Turns of the elements begin and end together; a turn takes as long as its slowest element.
 *
 * @throws {FulmarError} `OUT_OF_RANGE` if `maxSteps` is no positive integer; `ABORTED` if the signal fires; `SHAPE_MISMATCH` if
 * elements shall begin anew, or have a deadline, in a batch of several dimensions; `TIMEOUT` if the first reset or all of the first turn
 * is late (a later reset that is late ends the rollout with the steps before); `LIMIT_EXCEEDED` if 64 resets in a row show an element at
 * its end; the errors of environment and policy.
 *
 * @example
 * ```ts
 * import { chatsAt, DatasetChatEnv, replyPolicy, rollout } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const env = new DatasetChatEnv({ dataset: [{ query: '1+1?' }, { query: '2+2?' }], shuffle: false, numEnvs: 2 })
 * const policy = replyPolicy({ inputMode: 'history', reply: (prompt) => String(prompt.length) })
 * const steps = await rollout(env, policy, { maxSteps: 3 })
 * assert.deepEqual(steps.batchSize, [2, 3]) // nothing ends this conversation
 * const last = chatsAt(steps.parts[2], ['next', 'history', 'prompt'])
 * assert.deepEqual(last[1].map(({ content }) => content), ['2+2?', '1', '2', '3'])
 * ```
 */
export async function rollout(
  env: EnvBase,
  policy: DictPolicyLike,
  options: RolloutOptions,
): Promise<LazyStack> {
  checkKnownKeys('options', options, ['maxSteps', 'dict', 'breakWhenAnyDone', 'timeoutMs', 'clock', 'signal'])
  const { maxSteps, dict, breakWhenAnyDone = true, timeoutMs, clock = systemClock, signal } = options
  if (!Number.isSafeInteger(maxSteps) || maxSteps < 1) {
    throw new FulmarError('OUT_OF_RANGE', `maxSteps must be a positive integer: got ${maxSteps}`)
  }
  if (timeoutMs !== undefined && !(timeoutMs > 0))
    throw new FulmarError('OUT_OF_RANGE', `timeoutMs must be above 0: got ${timeoutMs}`)
  if (!breakWhenAnyDone || timeoutMs !== undefined) checkOneDimension(env)
  const patience = timeoutMs === undefined ? undefined : { clock, timeoutMs, signal }
  const loop = new TurnLoop({ env, policy: dictPolicyOf(policy), dict, patience })
  const steps: TensorDict[] = []
  while (steps.length < maxSteps) {
    if (signal?.aborted)
      throw new FulmarError('ABORTED', `signal must not have fired: got an abort after ${steps.length} steps`)
    let step: TensorDict
    try {
      step = await loop.take()
    } catch (error) {
      // The finished steps are kept; fewer steps than requested mean that the rollout ended.
      if (patience && steps.length > 0 && error instanceof FulmarError && error.code === 'TIMEOUT') break
      throw error
    }
    steps.push(step)
    if (breakWhenAnyDone && flagsAt(step.dict('next'), 'done').includes(true)) break
  }
  return lazyStack(steps, env.batchSize.length)
}
