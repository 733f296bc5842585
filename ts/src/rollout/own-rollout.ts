/** Environments that run their rollouts themselves, as programs do that hold their own conversations. */

import type { Renderer } from '../chat/index.js'
import type { MessageEnv } from '../env/index.js'
import type { Policy } from '../policy/index.js'
import type { SamplingOptions, UnscoredRollout } from './rollout-loop.js'
import type { Play } from './sibling-runner.js'

/** One rollout for an {@link OwnRolloutEnv}: its place, its policy, and the limits of the `Rollouter`. */
export interface OwnRollout
  extends Pick<Play, 'groupId' | 'rolloutId' | 'attempt' | 'seedOf' | 'clock' | 'signal' | 'hasExpired'>,
    Required<SamplingOptions> {
  readonly policy: Policy
  readonly renderer: Renderer
  /** Maximum number of answers; infinite for no limit. */
  readonly maxTurns: number
  /** Maximum length of prompt and answer together; infinite for no limit. */
  readonly maxRolloutTokens: number
  /** Maximum number of tokens of all answers together; infinite for no limit. */
  readonly maxTotalTokens: number
  readonly generateTimeoutMs: number | null
}

/** An environment without a conversation of its own: it runs the whole rollout. */
export interface OwnRolloutEnv extends MessageEnv {
  /** Runs the rollout; `undefined` if the signal fired. The caller disposes its ledger, and closes the environment. */
  playRollout(rollout: OwnRollout): Promise<UnscoredRollout | undefined>
}

/** Returns true if the environment runs its rollout itself. */
export function runsItself(env: MessageEnv): env is OwnRolloutEnv {
  return 'playRollout' in env && typeof env.playRollout === 'function'
}
