import { describe, expect, it } from 'vitest'
import { Tensor } from '../../src/tensor/index.js'
import {
  qtransformByMinMax,
  qtransformByParentAndSiblings,
  qtransformCompletedByMixValue,
  type SearchPolicy,
  type SearchStep,
  search,
  TableModel,
} from '../../src/tree/index.js'
import { codeOfAsync } from '../tensor/code-of.js'

const POLICIES: SearchPolicy[] = ['muzero', 'gumbel', 'ucb', 'ucb1Tuned', 'exp3']
const [numStates, numActions] = [6, 3]
const column = (of: (at: number) => number) =>
  Float32Array.from({ length: numStates * numActions }, (_, at) => Math.fround(of(at)))
const next = Int32Array.from({ length: numStates * numActions }, (_, at) => (at * 7 + 3) % numStates)
const [reward, discount, logits] = [column(Math.sin), column(() => 0.9), column((at) => Math.cos(3 * at))]
const value = Float32Array.from({ length: numStates }, (_, at) => Math.fround(Math.sin(5 * at)))
const cells = (data: Float32Array | Int32Array) =>
  Tensor.from(data as Float32Array, { shape: [numStates, numActions] })
const table = () =>
  new TableModel({
    next: cells(next),
    reward: cells(reward),
    discount: cells(discount),
    logits: cells(logits),
    value: Tensor.from(value),
  })

/** The same model as a function. */
function asked({ states, actions }: SearchStep<number>) {
  const at = states.map((state, tree) => state * numActions + Number(actions[tree]))
  const to = at.map((cell) => Number(next[cell]))
  const row = (state: number) => [...logits.subarray(state * numActions, (state + 1) * numActions)]
  return {
    states: to,
    reward: at.map((cell) => Number(reward[cell])),
    discount: at.map((cell) => Number(discount[cell])),
    value: to.map((state) => Number(value[state])),
    logits: to.flatMap(row),
  }
}

describe('search', () => {
  it('finds the same trees over a table, a function and an async function', async () => {
    const model = table()
    const root = model.root([0, 4, 5])
    for (const policy of POLICIES) {
      const options = { root, policy, numSimulations: 30, seed: 3 }
      const [one, two, three] = await Promise.all([
        search({ ...options, model }),
        search({ ...options, model: asked }),
        search({ ...options, model: async (step: SearchStep<number>) => asked(step) }),
      ])
      expect(two.tree.equals(one.tree)).toBe(true)
      expect(three.tree.equals(one.tree)).toBe(true)
      expect([two.action, three.action]).toEqual([one.action, one.action])
      expect(two.stateOf(1, 0)).toBe(4)
      expect(one.summary.visitCounts.sum().item()).toBe(90)
    }
  })

  it('continues below an action of an earlier search', async () => {
    const model = table()
    for (const policy of POLICIES) {
      const first = await search({ root: model.root([0]), model: asked, policy, numSimulations: 20 })
      const [action] = first.action
      const root = model.root([Number(next[Number(action)])])
      const reuse = { result: first, actions: first.action }
      const [second, other] = [
        await search({ root, model: asked, policy, numSimulations: 20, reuse }),
        await search({ root, model: asked, policy, numSimulations: 20 }),
      ]
      const visits = (result: typeof first) => Number(result.summary.visitCounts.sum().item())
      expect(visits(second)).toBe(visits(other) + Number(first.summary.visitCounts.data[Number(action)]) - 1)
    }
  })

  it('takes each scale of values, and never an action that is not allowed', async () => {
    const model = table()
    const scales = [
      qtransformByMinMax({ minValue: -2, maxValue: 2 }),
      qtransformByParentAndSiblings(),
      qtransformCompletedByMixValue({ rescaleValues: false }),
    ]
    for (const policy of POLICIES)
      for (const qtransform of scales) {
        const options = { root: model.root([1]), model, policy, qtransform, invalidActions: [0, 1, 0] }
        const { summary, action } = await search({ ...options, numSimulations: 10 })
        expect([summary.visitCounts.data[1], action[0] === 1]).toEqual([0, false])
      }
  })

  it('refuses wrong options, roots and answers of a model', async () => {
    const model = table()
    const root = model.root([0])
    const of = (options: object) => codeOfAsync(() => search({ root, model, ...options }))
    expect(await of({ numSimulations: 0 })).toBe('OUT_OF_RANGE')
    expect(await of({ temperature: -1 })).toBe('OUT_OF_RANGE')
    expect(await of({ policy: 'puct' })).toBe('UNKNOWN_NAME')
    expect(await of({ simulations: 3 })).toBe('UNKNOWN_NAME')
    expect(await of({ qtransform: qtransformByMinMax({ minValue: 1, maxValue: 0 }) })).toBe('OUT_OF_RANGE')
    expect(await of({ root: { ...root, states: [] } })).toBe('SHAPE_MISMATCH')
    expect(await of({ root: { ...root, logits: [1, 2, Number.NaN] } })).toBe('NON_FINITE')
    expect(await of({ root: { logits: [], value: [], states: [] } })).toBe('EMPTY')
    expect(await of({ numSimulations: 2 ** 28 })).toBe('LIMIT_EXCEEDED')
    expect(await of({ root: { ...root, states: [99] } })).toBe('OUT_OF_RANGE')
    const answer = (change: object) => (step: SearchStep<number>) => ({ ...asked(step), ...change })
    expect(await of({ model: answer({ reward: [] }) })).toBe('SHAPE_MISMATCH')
    expect(await of({ model: answer({ value: [Number.NaN] }) })).toBe('NON_FINITE')
    expect(await of({ model: answer({ states: [] }) })).toBe('USER_CODE')
    expect(await of({ model: answer({ logits: undefined }) })).toBe('MALFORMED')
  })

  it('ends by its signal', async () => {
    const controller = new AbortController()
    let calls = 0
    const model = (step: SearchStep<number>) => {
      calls += 1
      if (calls === 3) controller.abort()
      return asked(step)
    }
    const code = await codeOfAsync(() =>
      search({ root: table().root([0]), model, signal: controller.signal }),
    )
    expect([code, calls]).toEqual(['ABORTED', 3])
  })
})
