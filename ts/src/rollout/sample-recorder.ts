/**
 * Records some rollouts for people to read: `samples.jsonl` in the run folder, one JSON object per rollout.
 */

import type { Message } from '../chat/index.js'
import { checkGiven, checkKnownKeys, FulmarError } from '../core/index.js'
import type { JsonLinesFile } from '../telemetry/index.js'
import type { TokenizerLike } from '../tokenizer/index.js'
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
   * `extremes` keeps those, `all` every rollout of a group, also the unscored, in their order.
   * @default 'extremes'
   */
  readonly keep?: 'extremes' | 'all'
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
  /**
   * If true, also writes the ledger and the advantage: with them `fulmar dashboard` shows every token. About 20 bytes a token.
   * @default false
   */
  readonly logLedger?: boolean
  /**
   * Writes the text of each token of a ledger too.
   * @default none: readers show ids
   */
  readonly tokenizer?: Pick<TokenizerLike, 'decode'>
}

/** One line of `samples.jsonl`. */
export interface RolloutSample {
  /** Step that trains the rollout, from 1. @default the caller did not give it */
  readonly step?: number
  readonly isValidation: boolean
  readonly groupId: number
  readonly rolloutId: number
  readonly status: string
  readonly cause: Rollout['cause']
  readonly reward: number | null
  readonly rewardBreakdown: Readonly<Record<string, number>>
  readonly unscored: Rollout['unscored']
  readonly turns: readonly RolloutSampleTurn[]
  /** Advantage on each sampled token; only with `logLedger`. */
  readonly advantage?: number | null
  /** Text of each token of the ledger by its id; only with a tokenizer. */
  readonly tokenTexts?: Readonly<Record<number, string>>
  /** `Ledger.toBytes()` in base64, for `Ledger.fromBytes`; only with `logLedger`. */
  readonly ledger?: string
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

  /** @throws {FulmarError} `OUT_OF_RANGE` if `numExtremes` is not a positive integer; `UNKNOWN_NAME` for an option or another `keep`. */
  constructor(options: RolloutSampleRecorderOptions) {
    checkKnownKeys(
      'options',
      options,
      ['file', 'numExtremes', 'keep', 'logTokens', 'logLogProbs', 'logLedger', 'tokenizer'],
      ['file'],
    )
    const { numExtremes = 1, keep = 'extremes' } = options
    if (!Number.isSafeInteger(numExtremes) || numExtremes < 1) {
      throw new FulmarError('OUT_OF_RANGE', `numExtremes must be a positive integer: got ${numExtremes}`)
    }
    if (keep !== 'extremes' && keep !== 'all')
      throw new FulmarError('UNKNOWN_NAME', `keep must be 'extremes' or 'all': got ${JSON.stringify(keep)}`)
    this.#options = options
  }

  /**
   * Appends the selected rollouts of `group`, before it is disposed.
   * @throws {FulmarError} Errors of the file: `CLOSED` or `IO`; `LIMIT_EXCEEDED` for a line above 64 MiB.
   */
  record(
    group: RolloutGroup,
    options: { readonly isValidation?: boolean; readonly step?: number } = {},
  ): void {
    checkKnownKeys('options', options, ['isValidation', 'step'])
    const { isValidation = false, step } = options
    const { file, numExtremes = 1, keep = 'extremes' } = this.#options
    const kept = keep === 'all' ? group.rollouts : keepExtremeRewards(group.rollouts, numExtremes)
    for (const rollout of kept)
      file.append({ ...(step !== undefined && { step }), ...this.#toSample(rollout, isValidation) })
  }

  #toSample(rollout: Rollout, isValidation: boolean): RolloutSample {
    const { groupId, rolloutId, status, cause, reward, rewardBreakdown, unscored } = rollout
    const turns = rollout.turns.map((turn) => this.#toTurn(turn))
    const sample = {
      isValidation,
      groupId,
      rolloutId,
      status,
      cause,
      reward,
      rewardBreakdown,
      unscored,
      turns,
    }
    return this.#options.logLedger ? { ...sample, ...this.#tokensOf(rollout) } : sample
  }

  #tokensOf({ advantage, ledger }: Rollout): Pick<RolloutSample, 'advantage' | 'tokenTexts' | 'ledger'> {
    const { tokenizer } = this.#options
    const texts = tokenizer && { tokenTexts: tokenTexts(new Set(ledger.toJSON().ids), tokenizer) }
    return { advantage, ...texts, ledger: Buffer.from(ledger.toBytes()).toString('base64') }
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

/** The text of each token by itself; half a character is U+FFFD. */
function tokenTexts(
  ids: ReadonlySet<number>,
  tokenizer: Pick<TokenizerLike, 'decode'>,
): Readonly<Record<number, string>> {
  return Object.fromEntries([...ids].map((id) => [id, tokenizer.decode(Uint32Array.of(id))]))
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
