import { describe, expect, it } from 'vitest'
import { math } from '../../src/task/index.js'
import { codeOf, promptOf, rewardOf, said } from './said.js'

const sample = { problem: 'How many?', solution: 'So it is $\\boxed{34}$.' }

describe('math', () => {
  it.each([
    ['<answer>34</answer>', 1],
    ['<answer>\\frac{68}{2}</answer>', 1],
    ['<answer>35</answer>', 0.1],
    ['\\boxed{34}', 0],
  ])('of form tags pays for %j %d', async (text, reward) => {
    const task = math({ rows: [sample] })
    expect(await rewardOf(task, said([text]), sample)).toBe(reward)
    expect(task.isSolved(said([text]), sample)).toBe(reward === 1)
  })

  it.each([
    ['Answer: $34$', 1],
    ['\\boxed{34}', 1],
    ['it mentions 34', 0],
    ['Answer: 35', 0],
    ['\\boxed{35}. Answer: 34', 0],
  ])('of form boxed pays for %j %d', async (text, reward) => {
    const task = math({ rows: [sample], form: 'boxed' })
    expect(await rewardOf(task, said([text]), sample)).toBe(reward)
  })

  it('tells how to answer', async () => {
    const contents = async (form: 'tags' | 'boxed') =>
      (await promptOf(math({ rows: [sample], form }), sample))[0]?.content
    expect(await contents('tags')).toContain('<answer>')
    expect(await contents('boxed')).toContain('\\boxed')
  })

  it('refuses rows without an answer, and unknown forms', () => {
    expect(codeOf(() => math({ rows: [{ problem: 'a', solution: '\\boxed{}' }] }))).toBe('MALFORMED')
    // @ts-expect-error an unknown form
    expect(codeOf(() => math({ rows: [sample], form: 'free' }))).toBe('UNKNOWN_NAME')
  })
})
