/** Three small games: their best moves by exhaustive search, by a search over arrays, and by a search that grows a forest. */

import { Rng, Tensor, TensorDict } from 'fulmar'
import { MCTSForest, search, UCBScore } from 'fulmar/tree'

/**
 * A position has the cells and the player to move. `moves` lists what is allowed, `play` makes a move, `result` is -1 if the player to move has
 * lost, 0 for a draw, nothing before the end.
 */
const LINES = [
  [0, 1, 2],
  [3, 4, 5],
  [6, 7, 8],
  [0, 3, 6],
  [1, 4, 7],
  [2, 5, 8],
  [0, 4, 8],
  [2, 4, 6],
]
const ticTacToe = {
  numActions: 9,
  moves: ({ cells }) => cells.flatMap((cell, at) => (cell === 0 ? [at] : [])),
  play: ({ cells, player }, move) => ({ cells: cells.with(move, player), player: 3 - player }),
  result({ cells, player }) {
    if (LINES.some((line) => line.every((at) => cells[at] === 3 - player))) return -1
    return cells.includes(0) ? undefined : 0
  },
}

/** The move 5 h + n - 1 takes n from heap h. */
const nim = {
  numActions: 15,
  moves: ({ cells }) =>
    cells.flatMap((heap, at) => Array.from({ length: heap }, (_, taken) => 5 * at + taken)),
  play: ({ cells, player }, move) => {
    const heap = Math.floor(move / 5)
    return { cells: cells.with(heap, cells[heap] - (move % 5) - 1), player: 3 - player }
  },
  result: ({ cells }) => (cells.every((heap) => heap === 0) ? -1 : undefined),
}

/** Columns one after the other, cells from the bottom. */
const connectThree = {
  numActions: 4,
  moves: ({ cells }) => [0, 1, 2, 3].filter((column) => cells[4 * column + 3] === 0),
  play: ({ cells, player }, move) => {
    const height = cells.slice(4 * move, 4 * move + 4).indexOf(0)
    return { cells: cells.with(4 * move + height, player), player: 3 - player }
  },
  result({ cells, player }) {
    const at = (x, y) => (x >= 0 && x < 4 && y >= 0 && y < 4 ? cells[4 * x + y] : 0)
    const directions = [
      [1, 0],
      [0, 1],
      [1, 1],
      [1, -1],
    ]
    const isLine = (x, y, [dx, dy]) =>
      [0, 1, 2].every((step) => at(x + step * dx, y + step * dy) === 3 - player)
    for (let x = 0; x < 4; x++)
      for (let y = 0; y < 4; y++) if (directions.some((direction) => isLine(x, y, direction))) return -1
    return cells.includes(0) ? undefined : 0
  },
}

/** The game of a row, its position, and how the row writes a move. */
export function gameOf({ game, state, to_move: player }) {
  if (game.startsWith('tic-tac-toe'))
    return { rules: ticTacToe, position: { cells: state, player }, move: Number }
  if (game.startsWith('nim'))
    return {
      rules: nim,
      position: { cells: state, player },
      move: (move) => [Math.floor(move / 5), (move % 5) + 1],
    }
  return { rules: connectThree, position: { cells: state.flat(), player }, move: Number, simulations: 5000 }
}

const memos = new Map()

/** The value of a position for the player to move, and its best moves, by exhaustive search. */
export function solved(rules, position) {
  if (!memos.has(rules)) memos.set(rules, new Map())
  const memo = memos.get(rules)
  const worth = (now) => {
    const key = `${now.player}${now.cells}`
    const known = memo.get(key)
    if (known !== undefined) return known
    const value =
      rules.result(now) ?? Math.max(...rules.moves(now).map((move) => -worth(rules.play(now, move)) + 0))
    memo.set(key, value)
    return value
  }
  const value = worth(position) + 0
  const best = rules.moves(position).filter((move) => worth(rules.play(position, move)) + value === 0)
  return { value, best }
}

/** The move and the value of the position by the search over arrays; leaves are worth 0. */
export async function searched({ rules, position }, numSimulations) {
  const logits = (now) => {
    const moves = rules.result(now) === undefined ? rules.moves(now) : undefined
    return Array.from({ length: rules.numActions }, (_, at) => (!moves || moves.includes(at) ? 0 : -Infinity))
  }
  const step = (now, action) => {
    if (rules.result(now) !== undefined) return { next: now, reward: 0, discount: 0 }
    const next = rules.play(now, action)
    const result = rules.result(next)
    return { next, reward: -(result ?? 0), discount: result === undefined ? -1 : 0 }
  }
  const model = ({ states, actions }) => {
    const { next, reward, discount } = step(states[0], actions[0])
    return {
      states: [next],
      reward: [reward],
      discount: [discount],
      value: [0],
      logits: logits(next),
    }
  }
  const { action, summary } = await search({
    root: { logits: logits(position), value: [0], states: [position] },
    model,
    numSimulations,
    policy: 'ucb1Tuned',

    temperature: 0,
  })
  return { move: action[0], value: summary.value.item() }
}

/** The move by a Monte-Carlo tree search: a forest has the edges, and lists by row have their visits and returns. */
export function grown({ rules, position }, numSimulations) {
  const rng = Rng.fromSeed(1)
  const forest = new MCTSForest({ maxSize: 2 * numSimulations })
  const [moves, visits, returns] = [[], [], []]
  for (let simulation = 0; simulation < numSimulations; simulation++) {
    const path = []
    let now = position
    let isNew = false
    while (!isNew && rules.result(now) === undefined) {
      const { index } = forest.node(stateOf(now))
      const tried = index.map((row) => moves[row])
      const open = rules.moves(now).filter((move) => !tried.includes(move))
      isNew = open.length > 0
      const row = isNew ? add(now, open[rng.below(open.length)]) : index[bestOf(index)]
      path.push(row)
      now = rules.play(now, moves[row])
    }
    let value = playedOut(now)
    for (const row of path.reverse()) {
      value = -value
      visits[row] += 1
      returns[row] += value
    }
  }
  const { index } = forest.node(stateOf(position))
  return moves[index.reduce((best, row) => (visits[row] > visits[best] ? row : best))]

  function add(now, move) {
    const next = stateOf(rules.play(now, move)).tensor('observation')
    const step = stateOf(now).set('action', Tensor.from([move], { shape: [] }))
    const row = forest.add(step.set(['next', 'observation'], next))
    ;[moves[row], visits[row], returns[row]] = [move, 0, 0]
    return row
  }

  /** The place of the edge with the highest score. */
  function bestOf(rows) {
    const counts = rows.map((row) => visits[row])
    const node = TensorDict.from({
      win_count: Tensor.from(rows.map((row) => returns[row])),
      visits: Tensor.from(counts),
      total_visits: Tensor.from([counts.reduce((sum, count) => sum + count)], { shape: [] }),
    })
    const { data } = SCORE.forward(node).tensor('score')
    return data.indexOf(Math.max(...data))
  }

  /** The value for the player to move after random moves of both. */
  function playedOut(from) {
    const result = rules.result(from)
    if (result !== undefined) return result
    const open = rules.moves(from)
    return -playedOut(rules.play(from, open[rng.below(open.length)]))
  }
}

const SCORE = new UCBScore({ c: Math.SQRT2, ucb1: true })
const stateOf = ({ cells, player }) => TensorDict.from({ observation: Tensor.from([...cells, player]) })
