import { describe, expect, it } from 'vitest'
import { Tensor, TensorDict } from '../../src/tensor/index.js'
import { MCTSForest, UCBScore } from '../../src/tree/index.js'
import { codeOf } from '../tensor/code-of.js'
import { rollout, state } from './rollout.js'

describe('MCTSForest', () => {
  it('keeps each pair of a state and an action once', () => {
    const forest = new MCTSForest()
    expect(forest.extend(rollout([0, 0, 1], [1, 0, 2]))).toEqual([0, 1])
    expect(forest.extend(rollout([0, 0, 5], [0, 1, 6]))).toEqual([0, 2])
    expect(forest.length).toBe(3)
    expect(forest.node(state(0))).toMatchObject({ index: [0, 2], visits: [2, 1], count: 3 })
    expect(forest.node(state(77))).toEqual({ index: [], hash: [], visits: [], count: 0 })
    expect(forest.getChild(state(0)).tensor(['next', 'observation']).item()).toBe(5)
  })

  it('adds one step, and gives the tree of a rollout', () => {
    const forest = new MCTSForest()
    expect(forest.add(state(3))).toBe(0)
    expect(forest.extend(rollout([3, 1, 4], [3, 2, 5]), { returnNode: true }).numChildren).toBe(3)
    expect(codeOf(() => forest.add(rollout([0, 0, 1])))).toBe('SHAPE_MISMATCH')
  })

  it('names its keys as an environment does', () => {
    const forest = MCTSForest.fromEnv(
      { observationKeys: ['board'], doneKeys: ['over'] },
      { actionKeys: [['a', 'move']] },
    )
    expect([forest.observationKeys, forest.actionKeys, forest.doneKeys]).toEqual([
      ['board'],
      [['a', 'move']],
      ['over'],
    ])
    const step = TensorDict.from({ board: Tensor.from([1, 2]) })
      .set(['a', 'move'], Tensor.from([1]))
      .set(['next', 'board'], Tensor.from([3, 4]))
    expect(forest.add(step)).toBe(0)
  })

  it('refuses unknown states, missing entries and too many steps, and is as before then', () => {
    const forest = new MCTSForest({ maxSize: 1 })
    forest.extend(rollout([0, 0, 1]))
    expect(codeOf(() => forest.extend(rollout([1, 0, 2])))).toBe('LIMIT_EXCEEDED')
    expect(codeOf(() => forest.extend(TensorDict.from({ observation: Tensor.from([1]) })))).toBe(
      'UNKNOWN_NAME',
    )
    expect(codeOf(() => forest.getTree(state(5)))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => forest.getTree(rollout([0, 0, 1])))).toBe('SHAPE_MISMATCH')
    expect(codeOf(() => forest.getTree(state(0), { maxDepth: -1 }))).toBe('OUT_OF_RANGE')
    expect(codeOf(() => new MCTSForest({ observationKeys: [] }))).toBe('EMPTY')
    expect(forest.length).toBe(1)
  })

  it('comes back from its state', () => {
    const forest = new MCTSForest()
    forest.extend(rollout([0, 0, 1], [0, 1, 2], [0, 1, 2]))
    const other = new MCTSForest()
    other.loadStateDict(forest.stateDict())
    expect(other.node(state(0))).toEqual(forest.node(state(0)))
    expect(other.toString(state(0))).toBe(forest.toString(state(0)))
    other.clear()
    expect(other.length).toBe(0)
  })

  it('and a score are a tree search: of 5 matches, of which a move takes 1 or 2, the first move takes 2', () => {
    const forest = new MCTSForest()
    const score = new UCBScore({ c: 1, ucb1: true })
    const [wins, visits]: [number[], number[]] = [[], []]
    const bestOf = (rows: number[]): number => {
      const of = (list: number[]) => Tensor.from(rows.map((row) => list[row] ?? 0))
      const total = rows.reduce((sum, row) => sum + (visits[row] ?? 0), 0)
      const node = {
        win_count: of(wins),
        visits: of(visits),
        total_visits: Tensor.from([total], { shape: [] }),
      }
      const { data } = score.forward(TensorDict.from(node)).tensor('score')
      return [...data].map(Number).reduce((best, one, at, all) => (one > Number(all[best]) ? at : best), 0)
    }
    // Rows come in the order of the actions 1 and 2.
    const rowsOf = (left: number) => {
      for (const taken of [1, 2].filter((taken) => taken <= left))
        if (forest.node(state(left)).index.length < Math.min(2, left))
          forest.add(rollout([left, taken, left - taken]).index(0))
      return forest.node(state(left)).index
    }
    for (let simulation = 0; simulation < 60; simulation++) {
      const path: number[] = []
      for (let left = 5; left > 0; ) {
        const rows = rowsOf(left)
        const at = bestOf(rows)
        path.push(rows[at] as number)
        left -= at + 1
      }
      // Taking the last match wins.
      for (const [back, row] of path.toReversed().entries()) {
        wins[row] = (wins[row] ?? 0) + (back % 2 === 0 ? 1 : -1)
        visits[row] = (visits[row] ?? 0) + 1
      }
    }
    const [one, two] = rowsOf(5)
    expect(visits[two as number]).toBeGreaterThan(visits[one as number] as number)
  })
})
