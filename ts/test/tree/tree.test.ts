import { describe, expect, it } from 'vitest'
import { MCTSForest, type Tree } from '../../src/tree/index.js'
import { codeOf } from '../tensor/code-of.js'
import { rollout, state } from './rollout.js'

function grown(...steps: [number, number, number][]): Tree {
  const forest = new MCTSForest()
  forest.extend(rollout(...steps))
  return forest.getTree(state(0))
}

const observed = (vertex: Tree) => `${vertex.nodeObservation.item()}`
/** Two ways from 0 to 3, and two ends. */
const diamond = () => grown([0, 0, 1], [0, 1, 2], [1, 0, 3], [2, 0, 3], [3, 0, 4], [3, 1, 5])

describe('Tree', () => {
  it('is one object for each vertex, which all paths share', () => {
    const tree = diamond()
    const shared = tree.subtree.map((vertex) => vertex.subtree)
    expect(tree.subtree[0]?.subtree[0]).toBe(tree.subtree[1]?.subtree[0])
    expect(shared.map((vertices) => vertices.length)).toEqual([2, 2])
    expect(tree.subtree[0]?.subtree[0]?.parents).toEqual(tree.subtree)
    expect([tree.numVertices(), [...tree.validPaths()].length, tree.maxLength()]).toEqual([5, 4, 2])
    expect(tree.numVertices({ countRepeat: true })).toBe(7)
    const first = tree.subtree[0]
    if (first) first.count += 1
    expect(tree.getVertexById(1).visits).toBe(1)
  })

  it('has the facts of its vertices', () => {
    const [one] = diamond().subtree
    expect([one?.isTerminal, one?.branchingAction?.item(), one?.prevAction?.item()]).toEqual([false, 0, 0])
    expect([one?.rollout?.batchSize, one?.hash]).toEqual([[2], expect.any(BigInt)])
    expect(diamond().selectedActions.map((action) => action.item())).toEqual([0, 1])
    expect(diamond().fullyExpanded({ cardinality: () => 2n })).toBe(true)
    expect([diamond().rollout, diamond().hash, diamond().index]).toEqual([undefined, undefined, [0, 1]])
  })

  it('finds vertices, and the steps down from any of them', () => {
    const tree = diamond()
    const inner = tree.getVertexById(2)
    expect(inner.rolloutFromPath([1])?.tensor(['next', 'observation']).data).toEqual(Float32Array.of(2, 3, 5))
    expect(tree.rolloutFromPath([0, 0])?.tensor('observation').data).toEqual(Float32Array.of(0, 1, 3))
    expect([tree.rolloutFromPath([]), codeOf(() => tree.rolloutFromPath([7]))]).toEqual([
      undefined,
      'OUT_OF_RANGE',
    ])
    expect(tree.getVertexByHash(inner.hash ?? 0n)).toBe(inner)
    expect([tree.has(inner), inner.has(tree)]).toEqual([true, false])
    expect([codeOf(() => tree.getVertexById(99)), codeOf(() => tree.getVertexByHash(1n))]).toEqual([
      'OUT_OF_RANGE',
      'OUT_OF_RANGE',
    ])
    expect([...tree.vertices({ keyType: 'path' }).keys()]).toEqual(['', '0', '1', '0,0', '0,1', '1,0', '1,1'])
    expect(codeOf(() => tree.vertices({ keyType: 'name' as never }))).toBe('UNKNOWN_NAME')
  })

  it('is written and drawn, the children of a shared vertex once', () => {
    const forest = new MCTSForest()
    forest.extend(rollout([0, 0, 1], [0, 1, 2], [1, 0, 3], [2, 0, 3], [3, 0, 4], [3, 1, 5]))
    const tree = forest.getTree(state(0), { compact: false })
    expect(tree.toString(observed)).toBe(
      '(0,) 1\n (0, 0) 3\n  (0, 0, 0) 4\n  (0, 0, 1) 5\n(1,) 2\n (1, 0) 3\n  (1, 0, 0) 4\n  (1, 0, 1) 5',
    )
    expect(diamond().toString().split('\n')[0]).toBe('(0,) {"observation":3}')
    const svg = tree.plot({ makeLabels: (vertex) => `<${observed(vertex)}>` })
    expect([svg.match(/<circle/g)?.length, svg.includes('&lt;5&gt;')]).toEqual([7, true])
    expect(tree.plot({ figure: 'box' }).match(/<rect/g)?.length).toBe(7)
    expect(tree.plot({ format: 'text', makeLabels: observed })).toBe(tree.toString(observed))
    expect(codeOf(() => tree.plot({ figure: 'pie' as never }))).toBe('UNKNOWN_NAME')
    expect(codeOf(() => tree.plot({ format: 'png' as never }))).toBe('UNKNOWN_NAME')
  })

  it('ends where a path comes back', () => {
    const loop = grown([0, 0, 1], [0, 1, 2], [1, 0, 0], [2, 0, 0])
    expect([...loop.validPaths()].length).toBeGreaterThan(1)
    expect(loop.maxLength()).toBeLessThan(5)
    expect(grown([0, 0, 1], [1, 0, 0]).rollout?.batchSize).toEqual([2])
  })
})
