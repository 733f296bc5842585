/**
 * Plays each position of the golden rows of games by `search` and by a forest with `UCBScore`, and counts the moves that an exhaustive search
 * calls best: 2,000 simulations, 5,000 for connect three.
 *
 *     npm run build && node docs/runs/data-sets/games.mjs
 */

import { readFileSync } from 'node:fs'
import { gameOf, grown, searched, solved } from '../../../tests/conformance/games.mjs'

const lines = readFileSync(new URL('../../../tests/golden/tree/trees.jsonl', import.meta.url), 'utf8').trim()
const rows = lines
  .split('\n')
  .map((line) => JSON.parse(line))
  .filter(({ topic }) => topic === 'game')

const counts = new Map()
for (const row of rows) {
  const game = gameOf(row)
  const numSimulations = game.simulations ?? 2000
  const { best } = solved(game.rules, game.position)
  const { move, value } = await searched(game, numSimulations)
  const name = row.game.split(/:| on /)[0]
  const count = counts.get(name) ?? { positions: 0, search: 0, forest: 0 }
  counts.set(name, count)
  count.positions += 1
  count.search += Number(best.includes(move))
  count.forest += Number(best.includes(grown(game, numSimulations)))
  const isEmpty = row.game.startsWith('tic-tac-toe') && row.state.every((cell) => cell === 0)
  if (isEmpty) console.log(`the empty board of tic-tac-toe is worth ${value.toFixed(3)}`)
}
console.table(Object.fromEntries(counts))
