/** Requests about rollouts: lists with filters, and one rollout with everything that its line has. */

import { Ledger, type LedgerJson } from '../chat/index.js'
import { messageOf } from '../core/index.js'
import { type Answer, json, type Route } from './answer.js'
import { checkedQuery, integerOf, RequestRefusal } from './request-guard.js'
import { FILTER_NAMES, filtered, filterOf } from './rollout-filter.js'
import { fieldsOf, turnsOf } from './rollout-line.js'
import type { IndexedRollout, RunTail } from './run-tail.js'

/** Rollouts of one answer. */
export const LIST_LENGTH_MAX = 200

/** The routes by path. */
export const ROLLOUT_ROUTES: readonly (readonly [path: string, route: Route])[] = [
  ['/api/rollouts', answerList],
  ['/api/rollout', answerRollout],
]

/** The rollouts that pass a filter: their number, and one page of them. */
function answerList(runs: readonly RunTail[], url: URL): Answer {
  const query = checkedQuery(url, ['run', 'offset', 'limit', ...FILTER_NAMES])
  const { rollouts } = runOf(runs, query)
  const offset = integerOf(query, 'offset', { max: Number.MAX_SAFE_INTEGER, fallback: 0 })
  const limit = integerOf(query, 'limit', { max: LIST_LENGTH_MAX, fallback: LIST_LENGTH_MAX })
  const found = filtered(rollouts, filterOf(query))
  const page = found.slice(offset, offset + limit)
  return json({
    total: rollouts.length,
    found: found.length,
    statuses: [...new Set(rollouts.map(({ status }) => status))].sort(),
    rollouts: page.flatMap((index) => {
      const rollout = rollouts[index]
      return rollout ? [listed(rollout, index)] : []
    }),
  })
}

function listed({ text, offset, length, file, ...rollout }: IndexedRollout, index: number): object {
  return { index, ...rollout }
}

/** One rollout, with its ledger as JSON where the line has it. */
async function answerRollout(runs: readonly RunTail[], url: URL): Promise<Answer> {
  const query = checkedQuery(url, ['run', 'index'])
  const run = runOf(runs, query)
  const index = integerOf(query, 'index', { max: Number.MAX_SAFE_INTEGER })
  const rollout = run.rollouts[index]
  if (rollout === undefined)
    throw new RequestRefusal(
      404,
      'unknown_rollout',
      `index must be below ${run.rollouts.length}: got ${index}`,
    )
  const line = await run.rolloutLine(rollout)
  const { ledger, turns, messages, tokenTexts, ...facts } = fieldsOf(line)
  return json({
    ...listed(rollout, index),
    facts,
    turns: turnsOf(line),
    tokenTexts: tokenTexts ?? {},
    ...readLedger(ledger),
  })
}

/** The ledger of a line: base64 of its bytes, or its JSON. One that cannot be read is a note. */
function readLedger(given: unknown): { readonly ledger: LedgerJson | null; readonly note?: string } {
  if (given === undefined || given === null) return { ledger: null }
  try {
    using ledger =
      typeof given === 'string' ? Ledger.fromBytes(Buffer.from(given, 'base64')) : Ledger.fromJSON(given)
    return { ledger: ledger.toJSON() }
  } catch (error) {
    return { ledger: null, note: `the tokens cannot be read: ${messageOf(error)}` }
  }
}

function runOf(runs: readonly RunTail[], query: ReadonlyMap<string, readonly string[]>): RunTail {
  const run = runs[integerOf(query, 'run', { max: runs.length - 1, fallback: 0 })]
  if (run === undefined) throw new RequestRefusal(404, 'unknown_run', 'run must be that of a run: it is not')
  return run
}
