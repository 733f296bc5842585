import { describe, expect, it } from 'vitest'
import { isCountdownSolution } from '../../src/reward/index.js'
import { countdown } from '../../src/task/index.js'
import { codeOf, promptOf, rewardOf, said, take } from './said.js'

describe('countdown', () => {
  it('makes games that its seed fixes, others for training than for measuring, none won by adding up', () => {
    const games = take(countdown({ seed: 42 }), 'train', 100)
    expect(take(countdown({ seed: 42 }), 'train', 100)).toEqual(games)
    const measured = new Set(take(countdown({ seed: 42 }), 'validation', 100).map(({ answer }) => answer))
    expect(games.filter(({ answer }) => measured.has(answer))).toEqual([])
    expect(games.some((game) => isCountdownSolution(game.numbers.join('+'), game))).toBe(false)
    expect(games.every(({ numbers, target }) => numbers.length === 4 && target >= 1 && target <= 1000)).toBe(
      true,
    )
  })

  it('asks for the target and pays for reaching it', async () => {
    const task = countdown({ reward: { formatReward: 0.2 } })
    const sample = { query: 'reach 7', answer: 'target=7, numbers=3,4', target: 7, numbers: [3, 4] }
    expect((await promptOf(task, sample)).at(-1)?.content).toBe('reach 7')
    expect(await rewardOf(task, said(['<answer>3 + 4</answer>']), sample)).toBe(1)
    expect(await rewardOf(task, said(['<answer>3 * 4</answer>']), sample)).toBe(0.2)
    expect(task.isSolved(said(['3 + 4']), sample)).toBe(false)
  })

  it('refuses options of the wrong form', () => {
    // @ts-expect-error an unknown key
    expect(codeOf(() => countdown({ numcount: 3 }))).toBe('UNKNOWN_NAME')
    expect(codeOf(() => take(countdown({ numCount: 0 }), 'train', 1))).toBe('OUT_OF_RANGE')
  })
})
