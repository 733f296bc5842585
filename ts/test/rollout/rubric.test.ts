import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { RewardFn, RewardScore } from '../../src/env/index.js'
import { Rubric, type RubricOptions } from '../../src/rollout/index.js'
import { ManualClock } from '../../src/telemetry/index.js'

const gives = (name: string, score: RewardScore, weight = 1): RewardFn<null> => ({
  name,
  weight,
  score: () => score,
})
const completed = { status: 'completed' as const, turns: [] }

function scoreOf(rewardFns: readonly RewardFn<null>[], options: Partial<RubricOptions<null>> = {}) {
  return new Rubric({ rewardFns, ...options }).score(completed, null)
}

describe('Rubric', () => {
  it('closes plain reward functions, and leaves instances of classes their own fields', () => {
    const make = (rewardFn: unknown) => () => new Rubric({ rewardFns: [rewardFn as RewardFn<unknown>] })
    expect(make({ name: 'a', wieght: 2, score: () => 1 })).toThrow(
      expect.objectContaining({
        code: 'UNKNOWN_NAME',
        message: "rewardFns[0].wieght must be a known key: did you mean 'weight'?",
      }),
    )
    expect(make({ name: 'a' })).toThrow('rewardFns[0].score must be given: it is undefined')
    expect(make({ name: 'a', score: 1 })).toThrow(
      /^rewardFns\[0\] must be an object with a function score: got 1/,
    )
    expect(make(undefined)).toThrow('rewardFns[0] must be given: it is undefined')
    class Counting {
      readonly name = 'counting'
      readonly seen: string[] = []
      score = () => this.seen.push('x')
    }
    expect(make(new Counting())).not.toThrow()
  })

  it.each([
    [1, 1, 1],
    [1, 0, 0.76923],
    [0, 1, 0.23077],
  ])('weighs an answer of %d at 1.0 and a form of %d at 0.3 as %d', async (answer, form, reward) => {
    const output = await scoreOf([gives('answer', answer, 1), gives('form', form, 0.3)])
    expect(output.reward).toBeCloseTo(reward, 5)
    expect(output.rewardBreakdown).toEqual({ answer, form })
  })

  it('stays between the lowest and the highest score, whatever the weights', async () => {
    const part = fc.record({
      score: fc.float({ min: -10, max: 10, noNaN: true }),
      weight: fc.float({ min: 0.125, max: 8, noNaN: true }),
    })
    await fc.assert(
      fc.asyncProperty(fc.array(part, { minLength: 1, maxLength: 6 }), async (parts) => {
        const { reward } = await scoreOf(
          parts.map(({ score, weight }, index) => gives(`fn${index}`, score, weight)),
        )
        const scores = parts.map(({ score }) => score)
        expect(reward).toBeGreaterThanOrEqual(Math.min(...scores) - 1e-9)
        expect(reward).toBeLessThanOrEqual(Math.max(...scores) + 1e-9)
      }),
    )
  })

  it('refuses no function, two of one name, weights that add up to nothing, and weights that are not numbers', () => {
    const make = (rewardFns: RewardFn<null>[]) => () => new Rubric({ rewardFns })
    expect(make([])).toThrow(expect.objectContaining({ code: 'EMPTY' }))
    expect(make([gives('a', 1), gives('a', 1)])).toThrow(expect.objectContaining({ code: 'INCOMPATIBLE' }))
    expect(make([gives('a', 1, -1), gives('b', 1, 1)])).toThrow(
      expect.objectContaining({ code: 'OUT_OF_RANGE' }),
    )
    expect(make([gives('a', 1, Number.NaN)])).toThrow(expect.objectContaining({ code: 'NON_FINITE' }))
  })

  it('accepts a negative weight while the sum is positive', async () => {
    expect((await scoreOf([gives('good', 1, 2), gives('long', 1, -1)])).reward).toBe(1)
  })

  it('leaves a rollout unscored when a function gives NaN, and names the function', async () => {
    const output = await scoreOf([gives('answer', 1), gives('speed', Number.NaN)])
    expect(output.reward).toBeNull()
    expect(output.rewardBreakdown).toEqual({ answer: 1 })
    expect(output.unscored).toEqual({
      speed: { code: 'NON_FINITE', message: 'reward of speed must be a finite number: got NaN' },
    })
  })

  it('isolates a function that throws: the others still run', async () => {
    const broken: RewardFn<null> = {
      name: 'judge',
      score: () => {
        throw new Error('quota used up')
      },
    }
    const output = await scoreOf([broken, gives('answer', 1)])
    expect(output).toMatchObject({ reward: null, rewardBreakdown: { answer: 1 } })
    expect(output.unscored.judge).toEqual({ code: 'USER_CODE', message: 'judge: quota used up' })
  })

  it('keeps apart a score of 0 and no score', async () => {
    expect((await scoreOf([gives('answer', 0)])).reward).toBe(0)
    const declined = await scoreOf([gives('answer', { unscored: 'no reference' })])
    expect(declined.reward).toBeNull()
    expect(declined.unscored.answer).toEqual({ code: 'DECLINED', message: 'answer: no reference' })
  })

  it('gives up on a function that misses its deadline', async () => {
    const clock = new ManualClock()
    const slow: RewardFn<null> = { name: 'judge', score: () => new Promise(() => undefined) }
    const scoring = scoreOf([slow], { clock, timeoutMs: 20 })
    await Promise.resolve()
    clock.advance(20)
    expect((await scoring).unscored.judge?.code).toBe('TIMEOUT')
  })

  it('gives up after a minute where no deadline is set, and never with null', async () => {
    const slow: RewardFn<null> = { name: 'judge', score: () => new Promise(() => undefined) }
    const clock = new ManualClock()
    const scoring = scoreOf([slow], { clock })
    let isPending = true
    const settled = scoring.then(() => {
      isPending = false
    })
    await Promise.resolve()
    clock.advance(59_999)
    await new Promise((resolve) => setImmediate(resolve))
    expect(isPending).toBe(true)
    clock.advance(1)
    await settled
    expect((await scoring).unscored.judge?.code).toBe('TIMEOUT')
    const patient = new ManualClock()
    const endless = scoreOf([slow], { clock: patient, timeoutMs: null })
    await Promise.resolve()
    patient.advance(1e9)
    const other = new Promise((resolve) => setImmediate(() => resolve('pending')))
    expect(await Promise.race([endless, other])).toBe('pending')
  })

  it('takes the fixed reward of a truncated or failed rollout without asking the functions', async () => {
    let numAsked = 0
    const counting: RewardFn<null> = { name: 'answer', score: () => ++numAsked }
    const rubric = new Rubric({ rewardFns: [counting], truncationReward: 0, errorReward: -1 })
    const truncated = await rubric.score({ status: 'truncated_length', turns: [] }, null)
    expect(truncated).toMatchObject({ reward: 0, rewardBreakdown: { truncated: 0 } })
    const failed = await rubric.score({ status: 'error_parse', turns: [] }, null)
    expect(failed).toMatchObject({ reward: -1, rewardBreakdown: { errored: -1 } })
    expect(numAsked).toBe(0)
    expect((await rubric.score(completed, null)).reward).toBe(1)
  })

  it('asks the functions about a truncated rollout where no reward is fixed', async () => {
    const rubric = new Rubric({ rewardFns: [gives('answer', 0.5)] })
    expect((await rubric.score({ status: 'truncated_length', turns: [] }, null)).reward).toBe(0.5)
  })

  it('rejects with ABORTED when the signal fires', async () => {
    const rubric = new Rubric({ rewardFns: [gives('answer', 1)] })
    await expect(rubric.score(completed, null, AbortSignal.abort())).rejects.toMatchObject({
      code: 'ABORTED',
    })
  })
})
