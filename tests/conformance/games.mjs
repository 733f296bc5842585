/** Three small games, and their best moves by the two ways of searching: a forest with scores, and a search over arrays. */

import { Tensor, TensorDict } from 'fulmar'
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

/** Numbers in [0, 1) by a seed (mulberry32). */
function generator(seed) {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let word = Math.imul(state ^ (state >>> 15), state | 1)
    word ^= word + Math.imul(word ^ (word >>> 7), word | 61)
    return ((word ^ (word >>> 14)) >>> 0) / 2 ** 32
  }
}

/** The result of a random game for the player to move. */
function playout(rules, position, random) {
  let [now, sign] = [position, 1]
  for (;;) {
    const result = rules.result(now)
    if (result !== undefined) return sign * result
    const moves = rules.moves(now)
    now = rules.play(now, moves[Math.floor(random() * moves.length)])
    sign = -sign
  }
}

/** The move and its value by the search over arrays; leaves are worth the mean of some random games. */
export async function searched({ rules, position }, numSimulations) {
  const random = generator(1)
  const logits = (now) => {
    const moves = rules.result(now) === undefined ? rules.moves(now) : undefined
    return Array.from({ length: rules.numActions }, (_, at) => (!moves || moves.includes(at) ? 0 : -Infinity))
  }
  const value = (now) => {
    if (rules.result(now) !== undefined) return 0
    return [1, 2, 3, 4].reduce((sum) => sum + playout(rules, now, random) / 4, 0)
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
      value: [value(next)],
      logits: logits(next),
    }
  }
  const { action, summary } = await search({
    root: { logits: logits(position), value: [value(position)], states: [position] },
    model,
    numSimulations,
    policy: 'ucb',
    explorationConstant: 0.7,
    temperature: 0,
  })
  return { move: action[0], value: summary.qvalues.data[action[0]] }
}

/** The move and its value by a forest of the steps that were played and UCB1 over their results. */
export function grown({ rules, position }, numSimulations) {
  const random = generator(2)
  const forest = new MCTSForest({ maxSize: 1 << 18 })
  const score = new UCBScore({ c: 0.7, ucb1: true })
  const [wins, visits, moveOf] = [[], [], []]
  const observation = ({ cells, player }) => Tensor.from(Uint8Array.of(player, ...cells))
  const known = new Map()
  const rowsOf = (now) => {
    const key = String([now.player, ...now.cells])
    const rows = known.get(key) ?? forest.node(TensorDict.from({ observation: observation(now) })).index
    if (rows.length === rules.moves(now).length) known.set(key, rows)
    return rows
  }
  const added = (now, move, next) => {
    const step = TensorDict.from({ observation: observation(now), action: Tensor.from(Uint8Array.of(move)) })
    const row = forest.add(step.set(['next', 'observation'], observation(next)))
    ;[wins[row], visits[row], moveOf[row]] = [0, 0, move]
    return row
  }
  const best = (rows) => {
    const of = (list) => Tensor.from(rows.map((row) => list[row]))
    const total = rows.reduce((sum, row) => sum + visits[row], 0)
    const node = {
      win_count: of(wins),
      visits: of(visits),
      total_visits: Tensor.from([total], { shape: [] }),
    }
    const { data } = score.forward(TensorDict.from(node)).tensor('score')
    return rows[data.indexOf(Math.max(...data))]
  }
  for (let simulation = 0; simulation < numSimulations; simulation++) {
    const path = []
    let now = position
    let result = rules.result(now)
    while (result === undefined) {
      const rows = rowsOf(now)
      const tried = new Set(rows.map((row) => moveOf[row]))
      const untried = rules.moves(now).filter((move) => !tried.has(move))
      const move = untried[Math.floor(random() * untried.length)]
      const row = move === undefined ? best(rows) : added(now, move, rules.play(now, move))
      path.push(row)
      now = rules.play(now, moveOf[row])
      result = rules.result(now)
      if (move !== undefined) break
    }
    let gain = -(result ?? playout(rules, now, random))
    for (const row of path.toReversed()) {
      wins[row] += gain
      visits[row] += 1
      gain = -gain
    }
  }
  const rows = rowsOf(position)
  const row = rows.reduce((most, one) => (visits[one] > visits[most] ? one : most))
  return { move: moveOf[row], value: wins[row] / visits[row] }
}
