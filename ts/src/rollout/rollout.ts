/** What is kept of a rollout: its turns, its tokens, how it ended and what it was worth. */

import type { BridgeRefusal, Ledger } from '../chat/index.js'
import { checkGiven, checkKnownKeys } from '../core/index.js'
import type { RolloutStatus, RolloutView, TurnView } from '../env/index.js'
import type { FinishReason } from '../policy/index.js'
import type { Metric } from '../telemetry/index.js'

/** Which turn of which sibling of which group. */
export interface RolloutTurnId {
  /** Counts the groups of a run. */
  readonly groupId: number
  /** Counts the siblings of a group from 0. */
  readonly rolloutId: number
  /** Counts the turns of a rollout from 0. */
  readonly turnId: number
}

/**
 * `group=5/rollout=2/turn=0`; without the turn it names the rollout, for engines that keep its turns together.
 *
 * @example
 * ```ts
 * import { formatTurnId } from 'fulmar/rollout'
 * import assert from 'node:assert/strict'
 *
 * const id = { groupId: 5, rolloutId: 2, turnId: 0 }
 * assert.equal(formatTurnId(id), 'group=5/rollout=2/turn=0')
 * assert.equal(formatTurnId(id, { includeTurn: false }), 'group=5/rollout=2')
 * ```
 */
export function formatTurnId(id: RolloutTurnId, options: { readonly includeTurn?: boolean } = {}): string {
  checkGiven('id', id)
  const { groupId, rolloutId, turnId } = id
  checkKnownKeys('options', options, ['includeTurn'])
  const { includeTurn = true } = options
  return `group=${groupId}/rollout=${rolloutId}${includeTurn ? `/turn=${turnId}` : ''}`
}

/** Which step of a rollout failed; `rollout` is all of it together. */
export type RolloutStage = 'init' | 'render' | 'generate' | 'parse' | 'step' | 'rollout'

/** Why a rollout ended with an error. */
export interface RolloutCause {
  /** Where. */
  readonly stage: RolloutStage
  /**
   * What: the policy answered nothing, a deadline passed, the policy stopped early, code of the task or the policy
   * threw, a renderer threw, or an answer was not of the documented form.
   */
  readonly kind: 'no_completion' | 'deadline' | 'abort' | 'user_code' | 'renderer' | 'invalid_output'
  /** One sentence. */
  readonly message: string
}

/**
 * One turn: what the policy was given, what it sampled, what came of it. Prompts that extend each other share memory, so
 * a rollout holds each token a few times, however many turns it has.
 */
export interface RolloutTurn extends TurnView {
  /** Which turn this is. */
  readonly id: RolloutTurnId
  /** The whole prompt of this turn, as the policy was given it. */
  readonly promptIds: Uint32Array
  /** The sampled tokens. */
  readonly completionIds: Uint32Array
  /** Log-probability of each sampled token under the model at temperature 1. */
  readonly completionLogProbs: Float32Array
  /** Why sampling ended. */
  readonly finishReason: FinishReason
  /** The oldest weights that sampled these tokens. */
  readonly minPolicyVersion: number
  /** The newest weights that sampled these tokens. */
  readonly maxPolicyVersion: number
  /** Why the prompt of the next turn had to be rendered anew; `null` where it extended this one or there is none. */
  readonly bridgeRefusal: BridgeRefusal | null
}

/** A rollout that has ended. */
export interface Rollout extends RolloutView {
  /** Which group. */
  readonly groupId: number
  /** Which sibling. */
  readonly rolloutId: number
  /** Counts the attempts at it from 0: others before it failed. */
  readonly attempt: number
  /** How it ended; never `ongoing`. */
  readonly status: RolloutStatus
  /** Why, if it ended with an error; else `null`. */
  readonly cause: RolloutCause | null
  readonly turns: readonly RolloutTurn[]
  /** What the rubric gave; `null` if it could not be scored. */
  readonly reward: number | null
  /** Raw score of each reward function that gave one. */
  readonly rewardBreakdown: Readonly<Record<string, number>>
  /** Why functions gave none, by name. Empty if all did. */
  readonly unscored: Readonly<Record<string, UnscoredCause>>
  /** The reward compared with the siblings'; `null` if unscored. */
  readonly advantage: number | null
  /** Every token of the rollout, in native memory that the group owns. */
  readonly ledger: Ledger
}

/** Why a reward function gave no score. */
export interface UnscoredCause {
  /** `declined` by the function itself, not finite, too late, or thrown. */
  readonly code: 'DECLINED' | 'NON_FINITE' | 'TIMEOUT' | 'USER_CODE'
  /** One sentence that names the function. */
  readonly message: string
}

/**
 * The rollouts of one sample. Owns the native memory of their ledgers: dispose it, or declare it with `using`.
 * Everything but the ledgers stays usable afterwards.
 *
 * @example
 * ```ts
 * import { RolloutGroup } from 'fulmar/rollout'
 * import assert from 'node:assert/strict'
 *
 * using group = new RolloutGroup({ groupId: 3, sample: { country: 'Norway' }, rollouts: [], metrics: [] })
 * assert.equal(group.sample.country, 'Norway')
 * ```
 */
export class RolloutGroup<Sample = unknown> {
  /** Counts the groups of a run. */
  readonly groupId: number
  /** What the environment and the rubric were given. */
  readonly sample: Sample
  /** The siblings in order. */
  readonly rollouts: readonly Rollout[]
  /** What was measured. */
  readonly metrics: readonly Metric[]

  constructor(fields: {
    readonly groupId: number
    readonly sample: Sample
    readonly rollouts: readonly Rollout[]
    readonly metrics: readonly Metric[]
  }) {
    checkKnownKeys(
      'fields',
      fields,
      ['groupId', 'sample', 'rollouts', 'metrics'],
      ['groupId', 'rollouts', 'metrics'],
    )
    this.groupId = fields.groupId
    this.sample = fields.sample
    this.rollouts = fields.rollouts
    this.metrics = fields.metrics
  }

  /** Gives the memory of the ledgers back. */
  [Symbol.dispose](): void {
    for (const rollout of this.rollouts) rollout.ledger[Symbol.dispose]()
  }
}
