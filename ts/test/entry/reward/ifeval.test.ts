/** Types of `fulmar/reward/ifeval`: checks of instructions and their scores. */

import { expectTypeOf, test } from 'vitest'
import {
  detectLanguage,
  type IFEvalRow,
  type IFEvalScoreData,
  type IfEvalCheck,
  type IfEvalChecks,
  type IfEvalInstructionId,
  type IfEvalInstructions,
  type IfEvalResult,
  IfEvalScorer,
  type IfEvalScorerOptions,
  ifEvalCheck,
  ifEvalChecks,
  scoreIfEval,
  splitSentences,
} from '../../../src/entry/reward/ifeval.js'

test('checks are functions of a text, and scores have a flag for each', () => {
  expectTypeOf<IfEvalCheck>().toEqualTypeOf<(text: string) => boolean>()
  expectTypeOf(ifEvalChecks).returns.toEqualTypeOf<readonly IfEvalCheck[]>()
  expectTypeOf(scoreIfEval).returns.toEqualTypeOf<IFEvalScoreData>()
  expectTypeOf<IFEvalScoreData['instLevelStrictAcc']>().toEqualTypeOf<readonly boolean[]>()
  expectTypeOf<IFEvalScoreData['promptLevelLooseAcc']>().toEqualTypeOf<boolean>()
  expectTypeOf<IfEvalScorer['score']>().returns.toEqualTypeOf<IfEvalResult>()
  expectTypeOf<IfEvalResult['reward']>().toEqualTypeOf<number | undefined>()
  expectTypeOf(detectLanguage).returns.toEqualTypeOf<string | undefined>()
  expectTypeOf(splitSentences).returns.toEqualTypeOf<string[]>()
})

test('ids of instructions are a closed union, rows of a file have texts', () => {
  expectTypeOf<'punctuation:no_comma'>().toExtend<IfEvalInstructionId>()
  expectTypeOf<'punctuation:no_dot'>().not.toExtend<IfEvalInstructionId>()
  expectTypeOf<IFEvalRow['instruction_id_list']>().toEqualTypeOf<readonly string[]>()
  expectTypeOf<IFEvalRow['key']>().toEqualTypeOf<number | undefined>()
})

test('an aggregator sees scores and blocks', () => {
  const scorer = () =>
    new IfEvalScorer({
      aggregateReward: (score, blocks) => {
        expectTypeOf(score).toEqualTypeOf<IFEvalScoreData>()
        expectTypeOf(blocks.answerBlocks).toEqualTypeOf<readonly string[]>()
        return 1
      },
    })
  expectTypeOf(scorer).returns.toEqualTypeOf<IfEvalScorer>()
  expectTypeOf<IfEvalScorerOptions['formatWeights']>().toEqualTypeOf<
    readonly [number, number, number, number] | undefined
  >()
})

test('rows of another form, unknown options and choices are refused', () => {
  const wrong = (checks: IfEvalChecks, instructions: IfEvalInstructions) => {
    // @ts-expect-error arguments are needed, null or not
    ifEvalChecks({ instructionIdList: ['punctuation:no_comma'] })
    // @ts-expect-error no such reading of JSON
    ifEvalCheck('detectable_format:json_format', {}, { json: 'loose' })
    // @ts-expect-error a score reads checks, not instructions
    scoreIfEval('text', instructions)
    // @ts-expect-error four weights
    new IfEvalScorer({ formatWeights: [1, 2] })
    // @ts-expect-error the list cannot be changed
    checks[0] = () => true
  }
  expectTypeOf(wrong).toBeFunction()
})
