/** IFEval: how many of the instructions in a prompt a response follows, read strictly and loosely, and what that is worth. */

import { checkGiven, checkKnownKeys, describeValue, FulmarError } from '../../core/index.js'
import { tagBlocks } from '../tags.js'
import { checkRewardText, strip } from '../text.js'
import { type IfEvalCheck, type IfEvalCheckOptions, type IfEvalKwargs, ifEvalCheck } from './instructions.js'

/** Which instructions a response follows. */
export interface IFEvalScoreData {
  /** Whether it follows all of them, read strictly. */
  readonly promptLevelStrictAcc: boolean
  /** Whether it follows each, read strictly. */
  readonly instLevelStrictAcc: readonly boolean[]
  /** Whether it follows all of them, read loosely. */
  readonly promptLevelLooseAcc: boolean
  /** Whether it follows each, read loosely. */
  readonly instLevelLooseAcc: readonly boolean[]
}

/** The instructions of one prompt, as the dataset has them. */
export interface IfEvalInstructions {
  /** Names out of `IFEVAL_INSTRUCTION_IDS`. */
  readonly instructionIdList: readonly string[]
  /** The arguments of each, as many. */
  readonly kwargs: readonly (IfEvalKwargs | null)[]
}

/** What an aggregator may look at besides the score. */
export interface IfEvalBlocks {
  /** What stands in each `<think>` of the response. */
  readonly thinkBlocks: readonly string[]
  /** What stands in each `<answer>`. */
  readonly answerBlocks: readonly string[]
  /** Whether there is an answer. */
  readonly complete: boolean
}

/** Makes one number of a score. */
export type IfEvalAggregator = (score: IFEvalScoreData, blocks: IfEvalBlocks) => number

/** Options of {@link IfEvalScorer}. */
export interface IfEvalScorerOptions extends IfEvalCheckOptions {
  /**
   * How the reward is made: {@link ifEvalReward}, not at all, or by a function of yours.
   * @default true
   */
  readonly aggregateReward?: boolean | IfEvalAggregator
  /**
   * What the four parts of {@link ifEvalReward} weigh: prompt and instructions strictly, prompt and instructions loosely.
   * @default [0.4, 0.3, 0.2, 0.1]
   */
  readonly formatWeights?: readonly [number, number, number, number]
  /**
   * Whether an answer ends the episode.
   * @default true
   */
  readonly setDoneIfAnswer?: boolean
}

/** What a response is worth, and why. */
export interface IfEvalResult {
  readonly score: IFEvalScoreData
  /** `undefined` if `aggregateReward` is `false`. */
  readonly reward: number | undefined
  /** Whether the episode is over: there is an answer, and `setDoneIfAnswer`. */
  readonly done: boolean
}

/** Instructions of one prompt. */
export const IFEVAL_INSTRUCTIONS_MAX = 64

/** What is known of a prompt's instructions before any response: one check each. */
export type IfEvalChecks = readonly IfEvalCheck[]

/**
 * Makes the checks of a prompt, once for all responses to it.
 * @throws {FulmarError} `SHAPE_MISMATCH` if there are not as many `kwargs` as instructions; `LIMIT_EXCEEDED` if there are more than
 * 64; those of `ifEvalCheck`.
 *
 * @example
 * ```ts
 * import { ifEvalChecks, scoreIfEval } from 'fulmar/reward/ifeval'
 * import assert from 'node:assert/strict'
 *
 * const checks = ifEvalChecks({ instructionIdList: ['startend:quotation', 'punctuation:no_comma'], kwargs: [{}, null] })
 * assert.deepEqual(scoreIfEval('"hi"', checks).instLevelStrictAcc, [true, true])
 * assert.deepEqual(scoreIfEval('hi, you', checks).instLevelStrictAcc, [false, false])
 * ```
 */
export function ifEvalChecks(
  instructions: IfEvalInstructions,
  options: IfEvalCheckOptions = {},
): IfEvalChecks {
  checkKnownKeys('options', options, ['json'])
  checkGiven('instructions', instructions)
  const { instructionIdList, kwargs } = instructions
  if (!Array.isArray(instructionIdList) || !Array.isArray(kwargs)) {
    throw new FulmarError('MALFORMED', 'instructionIdList and kwargs must be lists')
  }
  const [numIds, numKwargs] = [instructionIdList.length, kwargs.length]
  if (numIds !== numKwargs) {
    throw new FulmarError(
      'SHAPE_MISMATCH',
      `kwargs must be as many as instructions, ${numIds}: got ${numKwargs}`,
    )
  }
  if (numIds > IFEVAL_INSTRUCTIONS_MAX) {
    throw new FulmarError(
      'LIMIT_EXCEEDED',
      `instructions must be at most ${IFEVAL_INSTRUCTIONS_MAX}: got ${numIds}`,
    )
  }
  return instructions.instructionIdList.map((id, index) =>
    ifEvalCheck(id, instructions.kwargs[index], options),
  )
}

/**
 * Scores a text. Strictly: a text that is not blank follows an instruction if its check says so. Loosely: if the check says so of it,
 * or of it without its first line, its last line or both, or of one of these four without any `*`. A prompt without instructions is
 * followed by every text.
 * @throws {FulmarError} `LIMIT_EXCEEDED` if the text is longer than 1,048,576 characters.
 *
 * @example
 * ```ts
 * import { ifEvalChecks, scoreIfEval } from 'fulmar/reward/ifeval'
 * import assert from 'node:assert/strict'
 *
 * const checks = ifEvalChecks({ instructionIdList: ['startend:quotation'], kwargs: [{}] })
 * const score = scoreIfEval('Sure!\n"To be."', checks)
 * assert.deepEqual([score.promptLevelStrictAcc, score.promptLevelLooseAcc], [false, true])
 * ```
 */
export function scoreIfEval(text: string, checks: IfEvalChecks): IFEvalScoreData {
  checkRewardText('text', text)
  const isFilled = strip(text) !== ''
  const instLevelStrictAcc = checks.map((follows) => isFilled && follows(text))
  const readings = looseReadings(text)
  const instLevelLooseAcc = checks.map(
    (follows, index) => instLevelStrictAcc[index] === true || readings.some((reading) => follows(reading)),
  )
  return {
    promptLevelStrictAcc: !instLevelStrictAcc.includes(false),
    instLevelStrictAcc,
    promptLevelLooseAcc: !instLevelLooseAcc.includes(false),
    instLevelLooseAcc,
  }
}

/** The readings besides the text itself; those that are blank or the same as another are left out. */
function looseReadings(text: string): readonly string[] {
  const lines = text.split('\n')
  const parts = [
    text,
    ...[lines.slice(1), lines.slice(0, -1), lines.slice(1, -1)].map((part) => strip(part.join('\n'))),
  ]
  const readings = new Set([...parts, ...parts.map((part) => part.replaceAll('*', ''))])
  readings.delete(text)
  return [...readings].filter((reading) => strip(reading) !== '')
}

/**
 * The reward of a score, from 0 to 1.15 with the default weights: `w0 * promptStrict + w1 * mean(instStrict) + w2 * promptLoose + w3 *
 * mean(instLoose)`, and 0.1 if there is exactly one answer block, and 0.05 if there is exactly one block of thought.
 *
 * @example
 * ```ts
 * import { ifEvalChecks, ifEvalReward, scoreIfEval } from 'fulmar/reward/ifeval'
 * import assert from 'node:assert/strict'
 *
 * const score = scoreIfEval('yes', ifEvalChecks({ instructionIdList: ['punctuation:no_comma'], kwargs: [{}] }))
 * const reward = ifEvalReward(score, { thinkBlocks: ['hm'], answerBlocks: ['yes'], complete: true })
 * assert.ok(Math.abs(reward - 1.15) < 1e-12)
 * ```
 */
export function ifEvalReward(
  score: IFEvalScoreData,
  blocks: IfEvalBlocks,
  weights: readonly [number, number, number, number] = [0.4, 0.3, 0.2, 0.1],
): number {
  checkGiven('score', score)
  checkGiven('blocks', blocks)
  const { thinkBlocks, answerBlocks } = blocks
  const parts = [
    Number(score.promptLevelStrictAcc),
    share(score.instLevelStrictAcc),
    Number(score.promptLevelLooseAcc),
    share(score.instLevelLooseAcc),
  ]
  const worth = parts.reduce((sum, part, index) => sum + part * (weights[index] ?? 0), 0)
  return worth + 0.1 * Number(answerBlocks.length === 1) + 0.05 * Number(thinkBlocks.length === 1)
}

/** All of none are followed. */
function share(followed: readonly boolean[]): number {
  return followed.length === 0 ? 1 : followed.filter(Boolean).length / followed.length
}

/**
 * Scores responses to prompts of IFEval: what stands in the first `<answer>` of the response is measured, `''` if there is none.
 *
 * @example
 * ```ts
 * import { IfEvalScorer } from 'fulmar/reward/ifeval'
 * import assert from 'node:assert/strict'
 *
 * const prompt = { instructionIdList: ['punctuation:no_comma'], kwargs: [{}] }
 * const { score, reward = 0, done } = new IfEvalScorer().score('<answer>no comma</answer>', prompt)
 * assert.deepEqual([score.promptLevelStrictAcc, done], [true, true])
 * assert.ok(Math.abs(reward - 1.1) < 1e-12)
 * ```
 */
export class IfEvalScorer {
  readonly #checkOptions: IfEvalCheckOptions
  readonly #aggregate: IfEvalAggregator | undefined
  readonly #setDoneIfAnswer: boolean

  /** @throws {FulmarError} `UNKNOWN_NAME` for an unknown key; `MALFORMED` for weights that are not four finite numbers. */
  constructor(options: IfEvalScorerOptions = {}) {
    checkKnownKeys('IfEvalScorer', options, ['aggregateReward', 'formatWeights', 'setDoneIfAnswer', 'json'])
    const {
      aggregateReward = true,
      formatWeights = [0.4, 0.3, 0.2, 0.1],
      setDoneIfAnswer = true,
      json = 'python',
    } = options
    const areWeights =
      Array.isArray(formatWeights) && formatWeights.length === 4 && formatWeights.every(Number.isFinite)
    if (!areWeights) {
      throw new FulmarError(
        'MALFORMED',
        `formatWeights must be four finite numbers: got ${describeValue(formatWeights)}`,
      )
    }
    const byDefault: IfEvalAggregator = (score, blocks) => ifEvalReward(score, blocks, formatWeights)
    this.#aggregate =
      typeof aggregateReward === 'function' ? aggregateReward : aggregateReward ? byDefault : undefined
    this.#setDoneIfAnswer = setDoneIfAnswer
    this.#checkOptions = { json }
  }

  /** Scores a response against instructions that are read now. @throws {FulmarError} Those of {@link ifEvalChecks}. */
  score(response: string, instructions: IfEvalInstructions): IfEvalResult {
    return this.scoreChecks(response, ifEvalChecks(instructions, this.#checkOptions))
  }

  /**
   * Scores a response against checks that are there.
   * @throws {FulmarError} `LIMIT_EXCEEDED` if the response is too long; `NON_FINITE` if an aggregator of yours gives no finite number.
   */
  scoreChecks(response: string, checks: IfEvalChecks): IfEvalResult {
    checkRewardText('response', response)
    const thinkBlocks = tagBlocks(response, 'think').map(strip)
    const answerBlocks = tagBlocks(response, 'answer').map(strip)
    const complete = answerBlocks.length > 0
    const score = scoreIfEval(answerBlocks[0] ?? '', checks)
    const reward = this.#aggregate?.(score, { thinkBlocks, answerBlocks, complete })
    if (reward !== undefined && !Number.isFinite(reward)) {
      throw new FulmarError(
        'NON_FINITE',
        `aggregateReward must give a finite number: got ${describeValue(reward)}`,
      )
    }
    return { score, reward, done: complete && this.#setDoneIfAnswer }
  }
}
