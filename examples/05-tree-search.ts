/**
 * A Monte-Carlo tree search over nim, from its parts: an `MCTSForest` keeps the moves that were tried, a `UCBScore` chooses which to try
 * again, and the visits of the first moves are the answer. Then `search`, which is the same in one call, over the same game.
 *
 * Players take any number of stones from one heap in turn; taking the last stone wins.
 *
 * Run it with `npm run build && node build/examples/05-tree-search.js`.
 */

import assert from 'node:assert/strict'
import { Rng, Tensor, TensorDict } from 'fulmar'
import { MCTSForest, search, UCBScore } from 'fulmar/tree'

type Heaps = readonly number[]

const START: Heaps = [2, 3, 5]
const HEAP_MAX = 5
const numSimulations = process.argv.includes('--smoke') ? 800 : 4000

/** The move `HEAP_MAX * h + n - 1` takes n stones from heap h. */
const movesOf = (heaps: Heaps) =>
  heaps.flatMap((stones, heap) => Array.from({ length: stones }, (_, taken) => HEAP_MAX * heap + taken))
const play = (heaps: Heaps, move: number) =>
  heaps.map((stones, heap) =>
    heap === Math.floor(move / HEAP_MAX) ? stones - (move % HEAP_MAX) - 1 : stones,
  )
const named = (move: number) => `${(move % HEAP_MAX) + 1} from heap ${Math.floor(move / HEAP_MAX) + 1}`
const isOver = (heaps: Heaps) => heaps.every((stones) => stones === 0)
const stateOf = (heaps: Heaps) => TensorDict.from({ observation: Tensor.from(heaps) })

/** The edges of the tree; their visits and returns are in lists, by the row of the edge. */
const forest = new MCTSForest({ maxSize: numSimulations })
const edges: { readonly move: number; visits: number; returns: number }[] = []
const score = new UCBScore({ c: Math.SQRT2, ucb1: true })
const rng = Rng.fromSeed(1)
for (let simulation = 0; simulation < numSimulations; simulation++) simulate(START)

const first = forest.node(stateOf(START)).index.map((row) => edges[row])
const best = first.reduce((most, edge) => ((edge?.visits ?? 0) > (most?.visits ?? 0) ? edge : most))
assert(best)
console.log(`forest of ${forest.length} edges: take ${named(best.move)}, tried ${best.visits} times`)
assert.equal(named(best.move), '4 from heap 3') // 2, 3 and 1 are left, whose binary sum is 0

/** Goes down to a move that was not tried, plays on at random, and tells all edges on the way. Returns the value for the player to move. */
function simulate(heaps: Heaps): number {
  if (isOver(heaps)) return -1
  const { index } = forest.node(stateOf(heaps))
  const tried = new Set(index.map((row) => edges[row]?.move))
  const open = movesOf(heaps).filter((move) => !tried.has(move))
  const row = open.length > 0 ? grow(heaps, open[rng.below(open.length)] as number) : select(index)
  const edge = edges[row]
  assert(edge)
  const next = play(heaps, edge.move)
  const value = -(open.length > 0 ? playOut(next) : simulate(next))
  edge.visits += 1
  edge.returns += value
  return value
}

/** Adds an edge; returns its row. */
function grow(heaps: Heaps, move: number): number {
  const step = stateOf(heaps).set('action', Tensor.from([move], { shape: [] }))
  const row = forest.add(step.set(['next', 'observation'], Tensor.from(play(heaps, move))))
  edges[row] = { move, visits: 0, returns: 0 }
  return row
}

/** The row with the highest score. */
function select(rows: readonly number[]): number {
  const visits = rows.map((row) => edges[row]?.visits ?? 0)
  const node = TensorDict.from({
    win_count: Tensor.from(rows.map((row) => edges[row]?.returns ?? 0)),
    visits: Tensor.from(visits),
    total_visits: Tensor.from([visits.reduce((sum, count) => sum + count, 0)], { shape: [] }),
  })
  const scores = [...score.forward(node).tensor('score').data].map(Number)
  return rows[scores.indexOf(Math.max(...scores))] as number
}

function playOut(heaps: Heaps): number {
  if (isOver(heaps)) return -1
  const open = movesOf(heaps)
  return -playOut(play(heaps, open[rng.below(open.length)] as number))
}

// The same game as a model: one call to it a simulation, for all trees of the search.
const logitsOf = (heaps: Heaps) => {
  const moves = movesOf(heaps)
  return Array.from({ length: HEAP_MAX * START.length }, (_, move) =>
    isOver(heaps) || moves.includes(move) ? 0 : -Infinity,
  )
}
const { action, summary } = await search({
  root: { logits: logitsOf(START), value: [0], states: [START] },
  model({ states, actions }) {
    const next = states.map((heaps, tree) => (isOver(heaps) ? heaps : play(heaps, actions[tree] as number)))
    const ends = next.map(isOver)
    return {
      states: next,
      reward: ends.map((ended, tree) => Number(ended && !isOver(states[tree] as Heaps))),
      discount: ends.map((ended) => (ended ? 0 : -1)),
      value: next.map(() => 0),
      logits: next.flatMap(logitsOf),
    }
  },
  policy: 'ucb1Tuned',
  numSimulations,
  temperature: 0,
})
const value = Number(summary.value.item()).toFixed(2)
console.log(
  `search: take ${named(action[0] as number)}; the position is worth ${value} to the player to move`,
)
assert.equal(named(action[0] as number), '4 from heap 3')
