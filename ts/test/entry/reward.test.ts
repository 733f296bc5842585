/** Types of `fulmar/reward`: scores and their parsers. */

import { expectTypeOf, test } from 'vitest'
import {
  type AnswerReward,
  type AnswerRewardParser,
  type CountdownProblem,
  CountdownRewardParser,
  cosineScaledReward,
  countdownProblem,
  extractMathAnswer,
  GSM8KRewardParser,
  isSameMath,
  MATHRewardParser,
  parseCountdown,
  repetitionPenalty,
  similarity,
  softOverlongPunishment,
  tagBlocks,
} from '../../src/entry/reward.js'

test('parsers share one interface, and a reward has its parts', () => {
  expectTypeOf<GSM8KRewardParser>().toExtend<AnswerRewardParser>()
  expectTypeOf<MATHRewardParser>().toExtend<AnswerRewardParser>()
  expectTypeOf<CountdownRewardParser>().toExtend<AnswerRewardParser>()
  expectTypeOf<AnswerRewardParser['score']>().parameters.toEqualTypeOf<[response: string, answer: string]>()
  expectTypeOf<AnswerReward>().toEqualTypeOf<{
    readonly rewardAnswer: number
    readonly rewardThink: number
    readonly rewardRight: number
    readonly reward: number
    readonly success: boolean
    readonly done: boolean
  }>()
})

test('scores are numbers, and what may be missing says so', () => {
  expectTypeOf(cosineScaledReward).returns.toEqualTypeOf<number>()
  expectTypeOf(similarity).returns.toEqualTypeOf<number>()
  expectTypeOf(extractMathAnswer).returns.toEqualTypeOf<string | undefined>()
  expectTypeOf(tagBlocks).returns.toEqualTypeOf<string[]>()
  expectTypeOf(parseCountdown).returns.toEqualTypeOf<CountdownProblem>()
  expectTypeOf<CountdownProblem['numbers']>().toEqualTypeOf<readonly number[]>()
  expectTypeOf(isSameMath).parameter(2).toEqualTypeOf<'value' | 'text' | undefined>()
  // Any source of integers will do.
  expectTypeOf(countdownProblem).parameter(0).toEqualTypeOf<{ below(bound: number): number }>()
})

test('unknown options, other choices and missing lengths are refused', () => {
  const wrong = (score: AnswerReward) => {
    // @ts-expect-error no such comparison
    new GSM8KRewardParser({ compare: 'value' })
    // @ts-expect-error the option is called `correctReward`
    new MATHRewardParser({ correct_reward: 2 })
    // @ts-expect-error no such use
    new CountdownRewardParser({ use: 'twice' })
    // @ts-expect-error the length of the longest answer is needed
    cosineScaledReward({ length: 3, isRight: true })
    // @ts-expect-error ids are numbers
    repetitionPenalty({ ids: ['a', 'b'] })
    // @ts-expect-error the option is called `cache`
    softOverlongPunishment({ length: 1, lengthMax: 2, soft_cache: 1 })
    // @ts-expect-error a reward cannot be changed
    score.reward = 1
  }
  expectTypeOf(wrong).toBeFunction()
})
