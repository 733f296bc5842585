/**
 * Records some rollouts for people to read: `samples.jsonl` in the run folder, one JSON object per rollout.
 */

import type { Message } from '../chat/index.js'
import { checkGiven, checkKnownKeys, FulmarError } from '../core/index.js'
import type { JsonLinesFile } from '../telemetry/index.js'
import type { Rollout, RolloutGroup, RolloutTurn } from './rollout.js'

/** Options of `RolloutSampleRecorder`. */
export interface RolloutSampleRecorderOptions {
  /** File for the lines, such as `RunLog.samples`. */
  readonly file: Pick<JsonLinesFile, 'append'>
  /**
   * Number of lowest and of highest scored rollouts to keep of each group.
   * @default 1
   */
  readonly numExtremes?: number
  /**
   * If true, also writes the token ids of prompts and completions.
   * @default false
   */
  readonly logTokens?: boolean
  /**
   * If true, also writes the log-probabilities of completions.
   * @default false
   */
  readonly logLogProbs?: boolean
}

/** One line of `samples.jsonl`. */
export interface RolloutSample {
  readonly isValidation: boolean
  readonly groupId: number
  readonly rolloutId: number
  readonly status: string
  readonly cause: Rollout['cause']
  readonly reward: number | null
  readonly rewardBreakdown: Readonly<Record<string, number>>
  readonly unscored: Rollout['unscored']
  readonly turns: readonly RolloutSampleTurn[]
}

/** One turn of a {@link RolloutSample}. */
export interface RolloutSampleTurn {
  readonly turnId: number
  readonly promptMessages: readonly Message[]
  readonly completionMessage: Message | null
  readonly envMessages: readonly Message[]
  readonly envRewards: Readonly<Record<string, number>>
  readonly finishReason: string
  readonly bridgeRefusal: string | null
  readonly numPromptTokens: number
  readonly numCompletionTokens: number
  readonly minPolicyVersion: number
  readonly maxPolicyVersion: number
  readonly promptIds?: readonly number[]
  readonly completionIds?: readonly number[]
  readonly completionLogProbs?: readonly number[]
}

/**
 * Appends the rollouts with extreme rewards of each group.
 *
 * @example
 * ```ts
 * import { RolloutGroup, RolloutSampleRecorder } from 'fulmar/rollout'
 * import assert from 'node:assert/strict'
 *
 * const lines: unknown[] = []
 * const recorder = new RolloutSampleRecorder({ file: { append: (line) => lines.push(line) } })
 * recorder.record(new RolloutGroup({ groupId: 0, sample: null, rollouts: [], metrics: [] }))
 * assert.equal(lines.length, 0)
 * ```
 */
export class RolloutSampleRecorder {
  readonly #options: RolloutSampleRecorderOptions

  /** @throws {FulmarError} `OUT_OF_RANGE` if `numExtremes` is not a positive integer. */
  constructor(options: RolloutSampleRecorderOptions) {
    checkKnownKeys('options', options, ['file', 'numExtremes', 'logTokens', 'logLogProbs'], ['file'])
    const { numExtremes = 1 } = options
    if (!Number.isSafeInteger(numExtremes) || numExtremes < 1) {
      throw new FulmarError('OUT_OF_RANGE', `numExtremes must be a positive integer: got ${numExtremes}`)
    }
    this.#options = options
  }

  /** Appends the selected rollouts of `group`. @throws {FulmarError} Errors of the file: `CLOSED` or `IO`. */
  record(group: RolloutGroup, options: { readonly isValidation?: boolean } = {}): void {
    checkKnownKeys('options', options, ['isValidation'])
    const { isValidation = false } = options
    const { file, numExtremes = 1 } = this.#options
    for (const rollout of keepExtremeRewards(group.rollouts, numExtremes))
      file.append(this.#toSample(rollout, isValidation))
  }

  #toSample(rollout: Rollout, isValidation: boolean): RolloutSample {
    const { groupId, rolloutId, status, cause, reward, rewardBreakdown, unscored } = rollout
    const turns = rollout.turns.map((turn) => this.#toTurn(turn))
    return { isValidation, groupId, rolloutId, status, cause, reward, rewardBreakdown, unscored, turns }
  }

  #toTurn(turn: RolloutTurn): RolloutSampleTurn {
    const { logTokens = false, logLogProbs = false } = this.#options
    const { id, promptIds, completionIds, completionLogProbs, ...rest } = turn
    return {
      turnId: id.turnId,
      ...rest,
      numPromptTokens: promptIds.length,
      numCompletionTokens: completionIds.length,
      ...(logTokens && { promptIds: [...promptIds], completionIds: [...completionIds] }),
      ...(logLogProbs && { completionLogProbs: [...completionLogProbs] }),
    }
  }
}

/**
 * Returns the `count` lowest and the `count` highest scored rollouts, each once, from low to high.
 *
 * @example
 * ```ts
 * import { keepExtremeRewards } from 'fulmar/rollout'
 * import assert from 'node:assert/strict'
 *
 * const rollouts = [0.1, 0.9, null, 0.2].map((reward) => ({ reward }))
 * assert.deepEqual(keepExtremeRewards(rollouts, 1), [{ reward: 0.1 }, { reward: 0.9 }])
 * ```
 */
export function keepExtremeRewards<Scored extends { readonly reward: number | null }>(
  rollouts: readonly Scored[],
  count: number,
): Scored[] {
  checkGiven('rollouts', rollouts)
  const scored = rollouts.filter(({ reward }) => reward !== null)
  scored.sort((a, b) => (a.reward ?? 0) - (b.reward ?? 0))
  return scored.filter((_, index) => index < count || index >= scored.length - count)
}
