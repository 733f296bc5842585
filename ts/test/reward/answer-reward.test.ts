import { describe, expect, it } from 'vitest'
import { GSM8KRewardParser } from '../../src/reward/index.js'
import { REWARD_TEXT_LENGTH_MAX } from '../../src/reward/text.js'

const truth = '#### 42'

describe('AnswerReward', () => {
  it('is 1 for the right answer, 0.1 for any other, 0 for none, and tells its parts', () => {
    const parser = new GSM8KRewardParser()
    expect(parser.score('<think>a</think><answer>42</answer>', truth)).toEqual({
      rewardAnswer: 1,
      rewardThink: 1,
      rewardRight: 1,
      reward: 1,
      success: true,
      done: true,
    })
    expect(parser.score('<answer>99</answer>', truth)).toMatchObject({
      reward: 0.1,
      rewardAnswer: 1,
      rewardThink: 0,
    })
    expect(parser.score('42', truth)).toMatchObject({
      reward: 0,
      rewardAnswer: 0,
      success: false,
      done: false,
    })
  })

  it('pays what the options say', () => {
    const parser = new GSM8KRewardParser({ formatReward: 0.5, correctReward: 2, setDoneIfAnswer: false })
    expect(parser.score('<answer>42</answer>', truth)).toMatchObject({ reward: 2, done: false })
    expect(parser.score('<answer>1</answer>', truth).reward).toBe(0.5)
  })

  it('takes the end of sequence off before it looks, so that it cannot stand for a tag', () => {
    const parser = new GSM8KRewardParser({ eosToken: '</answer>' })
    expect(parser.score('<answer>42</answer></answer>', truth).success).toBe(true)
    expect(parser.score('<answer>42</answer>', truth).rewardAnswer).toBe(0)
    expect(new GSM8KRewardParser().score('<answer>42</answer><|im_end|>', truth).success).toBe(true)
  })

  it('counts the first answer of several, or the last where asked to', () => {
    const response = '<answer>1</answer><answer>42</answer>'
    expect(new GSM8KRewardParser().score(response, truth).success).toBe(false)
    expect(new GSM8KRewardParser({ block: 'last' }).score(response, truth).success).toBe(true)
  })

  it.each([
    [{ formatreward: 1 }, 'UNKNOWN_NAME'],
    [{ correctReward: Number.NaN }, 'NON_FINITE'],
    [{ block: 'middle' }, 'UNKNOWN_NAME'],
    [{ compare: 'exact' }, 'UNKNOWN_NAME'],
  ])('refuses the options %j', (options, code) => {
    // @ts-expect-error options of the wrong form
    expect(() => new GSM8KRewardParser(options)).toThrow(expect.objectContaining({ code }))
  })

  it('refuses a response that is too long instead of scoring it 0', () => {
    const long = 'x'.repeat(REWARD_TEXT_LENGTH_MAX + 1)
    const score = () => new GSM8KRewardParser().score(long, truth)
    expect(score).toThrow(expect.objectContaining({ code: 'LIMIT_EXCEEDED' }))
  })
})
