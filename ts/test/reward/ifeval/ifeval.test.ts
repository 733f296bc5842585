import { describe, expect, it } from 'vitest'
import { IFEVAL_INSTRUCTIONS_MAX } from '../../../src/reward/ifeval/ifeval.js'
import { IfEvalScorer, ifEvalChecks, ifEvalReward, scoreIfEval } from '../../../src/reward/ifeval/index.js'
import { REWARD_TEXT_LENGTH_MAX } from '../../../src/reward/text.js'

const prompt = {
  instructionIdList: ['punctuation:no_comma', 'startend:quotation'],
  kwargs: [{}, null],
}
const strictAndLoose = (text: string, instructions = prompt) => {
  const score = scoreIfEval(text, ifEvalChecks(instructions))
  return [score.instLevelStrictAcc, score.instLevelLooseAcc]
}

describe('IFEval', () => {
  it('forgives a first line, a last line and stars when it reads loosely', () => {
    const forgiven = [true, true]
    expect(strictAndLoose('Sure:\n"a"')).toEqual([[true, false], forgiven])
    expect(strictAndLoose('"a"\nbye, bye')).toEqual([[false, false], forgiven])
    expect(strictAndLoose('Sure,\n"a"\nbye')).toEqual([[false, false], forgiven])
    expect(strictAndLoose('**"a"**')).toEqual([[true, false], forgiven])
    expect(strictAndLoose('Sure:\nb\n"a"\nbye')).toEqual([
      [true, false],
      [true, false],
    ])
  })

  it('follows nothing with a blank text, and everything where nothing is asked', () => {
    expect(strictAndLoose(' \n ')).toEqual([
      [false, false],
      [false, false],
    ])
    const nothing = scoreIfEval('', ifEvalChecks({ instructionIdList: [], kwargs: [] }))
    expect([nothing.promptLevelStrictAcc, nothing.promptLevelLooseAcc]).toEqual([true, true])
  })

  it('is worth 1.15 with everything followed, one answer and one thought, and 0 with nothing', () => {
    const worth = (all: boolean, think: number, answer: number) =>
      ifEvalReward(
        {
          promptLevelStrictAcc: all,
          instLevelStrictAcc: [all],
          promptLevelLooseAcc: all,
          instLevelLooseAcc: [all],
        },
        { thinkBlocks: Array(think).fill(''), answerBlocks: Array(answer).fill(''), complete: answer > 0 },
      )
    expect(worth(true, 1, 1)).toBeCloseTo(1.15, 12)
    expect(worth(true, 2, 2)).toBeCloseTo(1, 12)
    expect(worth(false, 0, 0)).toBe(0)
  })

  it('scores the first answer of a response and tells the end', () => {
    const { score, reward, done } = new IfEvalScorer().score(
      '<answer>"a"</answer><answer>b, c</answer>',
      prompt,
    )
    expect([score.promptLevelStrictAcc, done]).toEqual([true, true])
    expect(reward).toBeCloseTo(1, 12)
    expect(new IfEvalScorer().score('"a"', prompt)).toMatchObject({ reward: 0, done: false })
    expect(new IfEvalScorer({ setDoneIfAnswer: false }).score('<answer>x</answer>', prompt).done).toBe(false)
  })

  it('weighs as told, adds up by a function of the caller, or not at all', () => {
    const response = '<answer>"a"</answer>'
    expect(new IfEvalScorer({ formatWeights: [1, 0, 0, 0] }).score(response, prompt).reward).toBeCloseTo(
      1.1,
      12,
    )
    expect(new IfEvalScorer({ aggregateReward: false }).score(response, prompt).reward).toBeUndefined()
    const aggregateReward = new IfEvalScorer({
      aggregateReward: (score, { answerBlocks }) => score.instLevelStrictAcc.length + answerBlocks.length,
    })
    expect(aggregateReward.score(response, prompt).reward).toBe(3)
    const broken = () => new IfEvalScorer({ aggregateReward: () => Number.NaN }).score(response, prompt)
    expect(broken).toThrow(expect.objectContaining({ code: 'NON_FINITE' }))
  })

  it.each([
    [{ instructionIdList: ['punctuation:no_comma'], kwargs: [] }, 'SHAPE_MISMATCH'],
    [{ instructionIdList: 'punctuation:no_comma', kwargs: [] }, 'MALFORMED'],
    [{ instructionIdList: ['keywords:existence'], kwargs: [{}] }, 'MALFORMED'],
  ])('refuses the instructions %j', (instructions, code) => {
    // @ts-expect-error instructions of the wrong form
    expect(() => ifEvalChecks(instructions)).toThrow(expect.objectContaining({ code }))
  })

  it('takes as many instructions as it may and refuses one more, and a text that is too long', () => {
    const many = (count: number) => ({
      instructionIdList: Array(count).fill('punctuation:no_comma'),
      kwargs: Array(count).fill(null),
    })
    expect(ifEvalChecks(many(IFEVAL_INSTRUCTIONS_MAX))).toHaveLength(IFEVAL_INSTRUCTIONS_MAX)
    const limit = expect.objectContaining({ code: 'LIMIT_EXCEEDED' })
    expect(() => ifEvalChecks(many(IFEVAL_INSTRUCTIONS_MAX + 1))).toThrow(limit)
    const long = 'x'.repeat(REWARD_TEXT_LENGTH_MAX + 1)
    expect(() => new IfEvalScorer().score(long, prompt)).toThrow(limit)
  })

  it.each([{ formatWeights: [1, 2] }, { formatWeights: [1, 2, 3, Number.NaN] }])('refuses %j', (options) => {
    // @ts-expect-error options of the wrong form
    expect(() => new IfEvalScorer(options)).toThrow(expect.objectContaining({ code: 'MALFORMED' }))
  })
})
