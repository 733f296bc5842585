import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { RolloutView } from '../../src/env/index.js'
import { Rubric } from '../../src/rollout/index.js'
import { digitSum, type SumDigitsOptions, sumDigits } from '../../src/task/index.js'

const { signal } = new AbortController()
const take = (options: SumDigitsOptions, split: 'train' | 'validation', count: number) => {
  const dataset = sumDigits(options).makeDataset(split)
  return Array.from({ length: count }, () => dataset.next())
}
const said = (content: string): RolloutView => {
  const completionMessage = { role: 'assistant', content }
  const turn = { promptMessages: [], completionMessage, envMessages: [], envRewards: {} }
  return { status: 'completed', turns: [turn] }
}
const promptOf = async (options: SumDigitsOptions) => {
  const env = sumDigits(options).makeEnv({ numbers: [24, 13], target: 10 })
  return (await env.init({ signal })).initPromptMessages
}

describe('sumDigits', () => {
  it.each([
    [[24, 13, 45, 41], 24],
    [[27, 23], 14],
    [[79, 21, 85, 64], 42],
    [[13, 21], 7],
    [[58, 35, 86], 35],
    [[59, 77, 97, 99], 62],
  ])('adds up the digits of %j to %d', (numbers, target) => {
    expect(digitSum(numbers)).toBe(target)
  })

  it('draws two to four numbers of two digits by default, all counts and both ends among them', () => {
    const problems = take({ seed: 42 }, 'train', 3000)
    expect(new Set(problems.map(({ numbers }) => numbers.length))).toEqual(new Set([2, 3, 4]))
    const all = new Set(problems.flatMap(({ numbers }) => numbers))
    expect([Math.min(...all), Math.max(...all), all.size]).toEqual([10, 99, 90])
    expect(problems.every(({ numbers, target }) => digitSum(numbers) === target)).toBe(true)
  })

  it('is fixed by its seed', () => {
    expect(take({ seed: 42 }, 'train', 20)).toEqual(take({ seed: 42 }, 'train', 20))
    expect(take({ seed: 43 }, 'train', 20)).not.toEqual(take({ seed: 42 }, 'train', 20))
  })

  it('never measures a problem that is trained, in whatever order its numbers stand', () => {
    const options = { seed: 1, numbers: [2, 2], min: 0, max: 30 } as const
    const keyOf = ({ numbers }: { numbers: readonly number[] }) => [...numbers].sort().join()
    const trained = new Set(take(options, 'train', 4000).map(keyOf))
    const measured = new Set(take(options, 'validation', 400).map(keyOf))
    expect(measured.size).toBeGreaterThan(20)
    expect([...measured].filter((key) => trained.has(key))).toEqual([])
  })

  it('says that a split is empty where the task has a single problem', () => {
    const single = { numbers: [1, 1], min: 5, max: 5 } as const
    const splits = (['train', 'validation'] as const).map((split) => {
      try {
        return take(single, split, 1).length
      } catch (error) {
        return error instanceof Error && 'code' in error ? error.code : error
      }
    })
    expect(splits).toContain('EMPTY')
    expect(splits).toContain(1)
  })

  it('asks with a worked example whose answer is 28, or in one line, or as the caller likes', async () => {
    const [system, user] = await promptOf({})
    expect(system?.role).toBe('system')
    expect(system?.content).toMatch(/\[ANSWER\] 28$/)
    expect(user?.content).toContain('[24, 13]')
    expect(await promptOf({ prompt: 'short' })).toEqual([
      { role: 'user', content: 'Sum of digits: [24, 13]' },
    ])
    const prompt = (numbers: readonly number[]) => [{ role: 'user', content: numbers.join('+') }]
    expect(await promptOf({ prompt })).toEqual([{ role: 'user', content: '24+13' }])
  })

  it.each([
    ['[ANSWER] 10', 1],
    ['2+4+1+3 = 10\n[ANSWER]   10', 1],
    ['[ANSWER] 9 no, [ANSWER] 10', 1],
    ['[ANSWER] 10 or [ANSWER] 9', 0.3 / 1.3],
    ['[ANSWER] -10', 0.3 / 1.3],
    ['[ANSWER] ten', 0],
    ['[answer] 10', 0],
    ['10', 0],
    ['', 0],
  ])('is worth for %j', async (content, reward) => {
    const task = sumDigits()
    const sample = { numbers: [24, 13], target: 10 }
    const rubric = new Rubric({ rewardFns: task.rewardFns })
    expect((await rubric.score(said(content), sample)).reward).toBeCloseTo(reward, 12)
    expect(task.isSolved(said(content), sample)).toBe(reward === 1)
  })

  it('solves every worked example', () => {
    const task = sumDigits()
    fc.assert(
      fc.property(fc.array(fc.nat({ max: 999 }), { minLength: 1, maxLength: 6 }), (numbers) => {
        const sample = { numbers, target: digitSum(numbers) }
        const answer = task.workedExample(sample).at(-1)
        expect(answer?.role).toBe('assistant')
        expect(task.isSolved(said(String(answer?.content)), sample)).toBe(true)
      }),
    )
  })

  it('ends after one turn', async () => {
    const env = sumDigits().makeEnv({ numbers: [1], target: 1 })
    expect(await env.step({ role: 'assistant', content: '' }, { signal })).toEqual({ done: true })
  })

  it('refuses ranges that are empty or not of integers', () => {
    const refused = expect.objectContaining({ code: 'OUT_OF_RANGE' })
    expect(() => sumDigits({ min: 9, max: 3 })).toThrow(refused)
    expect(() => sumDigits({ numbers: [0, 2] })).toThrow(refused)
    expect(() => sumDigits({ min: -1 })).toThrow(refused)
    expect(() => sumDigits({ max: 10.5 })).toThrow(refused)
  })
})
