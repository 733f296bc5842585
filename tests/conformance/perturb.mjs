/**
 * Tries the comparison itself: `npm run conform -- --perturb FILE.jsonl...` changes what rows expect, one value at a time, and asserts that
 * each changed row fails. A change that goes unnoticed is one that a bug could make.
 *
 * Of each row, one value of every kind and place is changed, chosen by `--seed N`; `--share N` takes every Nth row. Prints a line a topic:
 * how many changes were made, how many went unnoticed, and where. Exit status 1 if one did that `unnoticed.mjs` does not name.
 */

import { changesOf } from './changes.mjs'
import { kindOf } from './judge.mjs'
import { reasonFor, UNNOTICED } from './unnoticed.mjs'

/** The number of places that are shown for a topic. */
const SHOWN_MAX = 12
/** The number of changes that are tried in one row; the seed selects them in longer rows. */
const TRIED_MAX = 40
/** The largest share of changes that may go unnoticed for a reason, and the least number of changes for this check. */
const SHARE_MAX = 0.01
const MEASURED_MIN = 10_000

/** Changes and judges the rows of all files; true if it failed. */
export async function perturb(files, { seed = '1', share = '1' }) {
  const topics = new Map()
  let nth = Number(seed) % Number(share)
  for (const { judge, lines } of files) {
    for (const [line, number] of lines) {
      nth += 1
      if (nth % Number(share) === 0)
        await ofRow(judge, line, drawing(`${seed} ${number} ${line.length}`), topics)
    }
  }
  return report(topics)
}

async function ofRow(judge, line, below, topics) {
  const row = JSON.parse(line)
  const adapter = judge.adapterOf(row)
  if (adapter === undefined) return
  const topic = [adapter.topic, row.topic ?? row.kind].filter((name) => typeof name === 'string').join(': ')
  if (!topics.has(topic))
    topics.set(topic, { rows: 0, skipped: 0, broken: 0, changes: 0, unnoticed: new Map() })
  const found = topics.get(topic)
  const kind = kindOf(await judge.judge(line))
  if (kind === 'skipped') {
    found.skipped += 1
    return
  }
  if (kind === 'failed') {
    found.broken += 1
    return
  }
  found.rows += 1
  const chosen = shuffled(changesOf(row, adapter, below), below).slice(0, TRIED_MAX)
  for (const { value, place, what, path } of chosen) {
    found.changes += 1
    const outcome = await judge.judge(line, value)
    if (kindOf(outcome) === 'failed') continue
    const reason = reasonFor(topic, `${place} ${what}`, kind)
    const where = `${place} (${what})`
    const one = found.unnoticed.get(where) ?? {
      count: 0,
      reason,
      example: `${row.id ?? row.case ?? ''} ${path}: ${kindOf(outcome)} ${outcome?.byDecision ?? ''}`,
    }
    one.count += 1
    found.unnoticed.set(where, one)
  }
}

function report(topics) {
  let [changes, unnamed, named, broken] = [0, 0, 0, 0]
  for (const [topic, found] of [...topics].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const places = [...found.unnoticed].sort(([, a], [, b]) => b.count - a.count)
    const count = places.reduce((sum, [, one]) => sum + one.count, 0)
    const rest = `${found.skipped ? `, ${found.skipped} rows skipped` : ''}${found.broken ? `, ${found.broken} rows FAIL` : ''}`
    process.stdout.write(
      `${topic}: ${found.rows} rows, ${found.changes} changes, ${count} unnoticed${rest}\n`,
    )
    for (const [where, { count: times, reason, example }] of places.slice(0, SHOWN_MAX))
      process.stdout.write(`  ${times} ${where}${reason ? `, as ${reason}` : ''}: ${example}\n`)
    if (places.length > SHOWN_MAX) process.stdout.write(`  and ${places.length - SHOWN_MAX} places more\n`)
    changes += found.changes
    broken += found.broken
    for (const [, one] of places) {
      if (one.reason) named += one.count
      else unnamed += one.count
    }
  }
  const share = changes === 0 ? 0 : named / changes
  process.stdout.write(
    `${changes} changes, ${unnamed} unnoticed, ${named} more for the ${UNNOTICED.length} reasons of unnoticed.mjs (${(100 * share).toFixed(2)} %)\n`,
  )
  const isLoose = share > SHARE_MAX && changes >= MEASURED_MIN
  if (isLoose) process.stdout.write(`at most ${100 * SHARE_MAX} % may go unnoticed\n`)
  const isBad = unnamed > 0 || broken > 0 || isLoose || changes === 0
  process.stdout.write(`${isBad ? 0 : 1} passed, ${isBad ? 1 : 0} failed\n`)
  return isBad
}

/** Whole numbers below a bound, by a text (mulberry32). */
function drawing(text) {
  let state = [...text].reduce(
    (hash, char) => Math.imul(hash ^ char.codePointAt(0), 16_777_619),
    2_166_136_261,
  )
  return (bound) => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) % bound
  }
}

function shuffled(list, below) {
  const all = [...list]
  for (let at = all.length - 1; at > 0; at--) {
    const other = below(at + 1)
    ;[all[at], all[other]] = [all[other], all[at]]
  }
  return all
}
