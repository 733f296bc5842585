/** Rollouts: their turns, tokens, status and reward. */

import type { BridgeRefusal, Ledger } from '../chat/index.js'
import { checkGiven, checkKnownKeys, type ErrorCode, FulmarError, messageOf } from '../core/index.js'
import type { RolloutStatus, RolloutView, TurnView } from '../env/index.js'
import type { FinishReason } from '../policy/index.js'
import type { Metric } from '../telemetry/index.js'

/** Position of a turn: group, member and turn. */
export interface RolloutTurnId {
  /** Index of the group in the run. */
  readonly groupId: number
  /** Index of the rollout in its group. */
  readonly rolloutId: number
  /** Index of the turn in its rollout. */
  readonly turnId: number
}

/**
 * Formats `group=5/rollout=2/turn=0`; without the turn it names the rollout, for engines that keep its turns
 * together.
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

/** Stage of a rollout that failed; `rollout` is the rollout as a whole. */
export type RolloutStage = 'init' | 'render' | 'generate' | 'parse' | 'step' | 'rollout'

/** Reason of an error status. */
export interface RolloutCause {
  /** Stage that failed. */
  readonly stage: RolloutStage
  /**
   * Kind of the failure: the policy returned nothing, a deadline passed, the policy stopped early, code of
   * the task or the policy threw, a renderer threw, or an answer was not of the documented form.
   */
  readonly kind: 'no_completion' | 'deadline' | 'abort' | 'user_code' | 'renderer' | 'invalid_output'
  /** Message, one sentence. */
  readonly message: string
  /**
   * Code of the error, such as `UNAVAILABLE` of a server.
   * @default none, as it was not a `FulmarError`
   */
  readonly code?: ErrorCode
}

/** @internal Returns the cause of an error that code of the task or the policy threw. */
export function causeOf(stage: RolloutStage, error: unknown): RolloutCause {
  const code = error instanceof FulmarError ? { code: error.code } : {}
  return { stage, kind: 'user_code', message: messageOf(error), ...code }
}

/** Counts of tokens by a server that answers with messages; `null` if it did not tell. */
export interface TokenUsage {
  readonly numPromptTokens: number | null
  readonly numCompletionTokens: number | null
}

/**
 * One turn: prompt, sampled tokens, and answer. Prompts that extend each other share memory, so a rollout
 * stores each token only a few times, for any number of turns.
 */
export interface RolloutTurn extends TurnView {
  /** Position of this turn. */
  readonly id: RolloutTurnId
  /** Whole prompt of this turn, as the policy got it. */
  readonly promptIds: Uint32Array
  /** Sampled tokens. */
  readonly completionIds: Uint32Array
  /** Log-probability of each sampled token under the model at temperature 1. */
  readonly completionLogProbs: Float32Array
  /** Reason why sampling ended. */
  readonly finishReason: FinishReason
  /** Oldest policy version that sampled these tokens. */
  readonly minPolicyVersion: number
  /** Newest policy version that sampled these tokens. */
  readonly maxPolicyVersion: number
  /**
   * Reason why the next prompt was rendered from scratch; `null` if it extends this one or does not exist.
   */
  readonly bridgeRefusal: BridgeRefusal | null
  /**
   * Counts of a server that is known by its messages alone: there are no ids then, and nothing to train on.
   * @default the ids are known
   */
  readonly usage?: TokenUsage
  /**
   * Earlier turn that the prompt departs from, of a program that edits its history or asks several times at once.
   * @default none: the prompt begins a conversation or extends one
   */
  readonly fork?: TurnFork
  /**
   * Reason why the sampled tokens are not trained: the client went away while they were sampled or before it had
   * them, or the policy failed after them. The ledger has no such turn.
   * @default they are trained
   */
  readonly untrained?: 'aborted' | 'undelivered' | 'failed'
}

/** Departure of a prompt from an earlier turn. */
export interface TurnFork {
  /** The earlier turn; `null` for a conversation with another beginning. */
  readonly turnId: number | null
  /**
   * `sibling`: the same prompt again, or another question after the same answer; `history_edit`: earlier messages
   * differ; `compaction`: earlier messages are missing; `foreign`: a conversation of its own; `tools`: other tools;
   * `retention`: the renderer does not keep the tokens of earlier reasoning; `opaque`: it cannot extend any.
   */
  readonly reason: 'sibling' | 'history_edit' | 'compaction' | 'foreign' | 'tools' | 'retention' | 'opaque'
}

/** A rollout that has ended. */
export interface Rollout extends RolloutView {
  /** Index of the group in the run. */
  readonly groupId: number
  /** Index of the rollout in its group. */
  readonly rolloutId: number
  /** Number of failed attempts before this one. */
  readonly attempt: number
  /** Final status; never `ongoing`. */
  readonly status: RolloutStatus
  /** Reason of an error status; else `null`. */
  readonly cause: RolloutCause | null
  readonly turns: readonly RolloutTurn[]
  /** Reward of the rubric; `null` if unscored. */
  readonly reward: number | null
  /** Raw score of each reward function that returned one. */
  readonly rewardBreakdown: Readonly<Record<string, number>>
  /** Reasons of missing scores, by function. Empty if there are all scores. */
  readonly unscored: Readonly<Record<string, UnscoredCause>>
  /** Advantage within the group; `null` if unscored. */
  readonly advantage: number | null
  /** All tokens of the rollout, in native memory that the group owns. */
  readonly ledger: Ledger
}

/** Reason of a missing score. */
export interface UnscoredCause {
  /** Declined by the function itself, not finite, timed out, or thrown. */
  readonly code: 'DECLINED' | 'NON_FINITE' | 'TIMEOUT' | 'USER_CODE'
  /** Message, one sentence that names the function. */
  readonly message: string
}

/**
 * The rollouts of one sample. Owns the native memory of their ledgers: dispose it, or declare it with
 * `using`. Everything else stays usable afterwards.
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
  /** Index of the group in the run. */
  readonly groupId: number
  /** Sample of the environments and the rubric. */
  readonly sample: Sample
  /** Members in order. */
  readonly rollouts: readonly Rollout[]
  /** Metrics of the group. */
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

  /** Frees the memory of the ledgers. */
  [Symbol.dispose](): void {
    for (const rollout of this.rollouts) rollout.ledger[Symbol.dispose]()
  }
}
