/** IFEval: strict and loose checks of the instructions in a prompt, and their reward. */

import { checkGiven, checkKnownKeys, describeValue, FulmarError } from '../../core/index.js'
import { tagBlocks } from '../tags.js'
import { checkRewardText, strip } from '../text.js'
import { type IfEvalCheck, type IfEvalCheckOptions, type IfEvalKwargs, ifEvalCheck } from './instructions.js'

/** A row of IFEval. */
export interface IFEvalRow {
  /** The number of the prompt in the dataset. */
  readonly key?: number
  /** Prompt of the row. */
  readonly prompt: string
  /** Names of the instructions. */
  readonly instruction_id_list: readonly string[]
  /** Their arguments, as many. */
  readonly kwargs: readonly (IfEvalKwargs | null)[]
}

/** Instructions that a response follows. */
export interface IFEvalScoreData {
  /** True if it follows all of them, read strictly. */
  readonly promptLevelStrictAcc: boolean
  /** True for each instruction that it follows, read strictly. */
  readonly instLevelStrictAcc: readonly boolean[]
  /** True if it follows all of them, read loosely. */
  readonly promptLevelLooseAcc: boolean
  /** True for each instruction that it follows, read loosely. */
  readonly instLevelLooseAcc: readonly boolean[]
}

/** Instructions of one prompt, as in the dataset. */
export interface IfEvalInstructions {
  /** Names from `IFEVAL_INSTRUCTION_IDS`. */
  readonly instructionIdList: readonly string[]
  /** Arguments of the instructions, one entry each. */
  readonly kwargs: readonly (IfEvalKwargs | null)[]
}

/** Inputs of an aggregator besides the score. */
export interface IfEvalBlocks {
  /** Contents of each `<think>` of the response. */
  readonly thinkBlocks: readonly string[]
  /** Contents of each `<answer>`. */
  readonly answerBlocks: readonly string[]
  /** True if there is an answer. */
  readonly complete: boolean
}

/** Combines a score into one number. */
export type IfEvalAggregator = (score: IFEvalScoreData, blocks: IfEvalBlocks) => number

/** Options of {@link IfEvalScorer}. */
export interface IfEvalScorerOptions extends IfEvalCheckOptions {
  /**
   * Computation of the reward: {@link ifEvalReward}, none, or a custom function.
   * @default true
   */
  readonly aggregateReward?: boolean | IfEvalAggregator
  /**
   * Weights of the four parts of {@link ifEvalReward}: prompt and instructions strictly, prompt and
   * instructions loosely.
   * @default [0.4, 0.3, 0.2, 0.1]
   */
  readonly formatWeights?: readonly [number, number, number, number]
  /**
   * If true, an answer ends the episode.
   * @default true
   */
  readonly setDoneIfAnswer?: boolean
}

/** Score and reward of a response. */
export interface IfEvalResult {
  readonly score: IFEvalScoreData
  /** Reward; `undefined` if `aggregateReward` is `false`. */
  readonly reward: number | undefined
  /** True if the episode is over: there is an answer, and `setDoneIfAnswer`. */
  readonly done: boolean
}

/** Maximum number of instructions of one prompt. */
export const IFEVAL_INSTRUCTIONS_MAX = 64

/** Checks of a prompt's instructions, one each. */
export type IfEvalChecks = readonly IfEvalCheck[]

/**
 * Creates the checks of a prompt, once for all its responses.
 * @throws {FulmarError} `SHAPE_MISMATCH` if the numbers of `kwargs` and instructions differ; `LIMIT_EXCEEDED` if there are more than
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
 * Scores a text. Strictly: a non-blank text follows an instruction if its check passes. Loosely: if the check
 * passes for it, or for it without its first line, its last line or both, or for one of these four without
 * any `*`. Every text follows a prompt without instructions.
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

/** Returns the variants besides the text itself, without blank and repeated ones. */
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
 * Computes the reward of a score, from 0 to 1.15 with the default weights: `w0 * promptStrict + w1 *
 * mean(instStrict) + w2 * promptLoose + w3 * mean(instLoose)`, plus 0.1 if there is exactly one answer block,
 * plus 0.05 if there is exactly one thought block.
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

/** Returns true for an empty list. */
function share(followed: readonly boolean[]): number {
  return followed.length === 0 ? 1 : followed.filter(Boolean).length / followed.length
}

/**
 * Scores responses to prompts of IFEval by the text of the first `<answer>`, `''` without one.
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

  /** Scores a response against instructions. @throws {FulmarError} The errors of {@link ifEvalChecks}. */
  score(response: string, instructions: IfEvalInstructions): IfEvalResult {
    return this.scoreChecks(response, ifEvalChecks(instructions, this.#checkOptions))
  }

  /**
   * Scores a response against existing checks.
   * @throws {FulmarError} `LIMIT_EXCEEDED` if the response is too long; `NON_FINITE` if a custom aggregator
   * returns a number that is not finite.
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
        `aggregateReward must return a finite number: got ${describeValue(reward)}`,
      )
    }
    return { score, reward, done: complete && this.#setDoneIfAnswer }
  }
}

/** System prompt of the task: the form of an answer that the parser reads. */
export const IFEVAL_PROMPT = `You follow instructions to the letter. First think about how to follow all of them, then write the response.
The reasoning and the response are enclosed within <think></think> and <answer></answer> tags, respectively,
i.e., <think>reasoning process here</think> <answer>response here</answer>.`
