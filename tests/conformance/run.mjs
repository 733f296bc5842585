/**
 * Compares Fulmar with golden rows: `node tests/conformance/run.mjs FILE.jsonl...`, which `npm run conform` starts.
 *
 * A file's topic is what its rows' schema says. Prints `FILE: N passed, N failed` and the first differences; exit status
 * 1 if a row failed, if a file holds none, or if nothing knows its schema.
 */

import { readFileSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { ADAPTERS } from './adapters.mjs'
import { members } from './raw-json.mjs'

/** How many differences of a file are shown. */
const SHOWN_MAX = 5

let failed = false
for (const path of process.argv.slice(2)) failed = (await conform(path)) || failed
process.exitCode = failed ? 1 : 0

/** Checks one file; true if it failed. */
async function conform(path) {
  const counts = { passed: 0, failed: 0, byDecision: 0, skipped: 0 }
  const notes = new Map()
  const differences = []
  const prepared = new Map()
  const folder = dirname(resolve(path))
  // Texts hold U+2028 and the like, so only \n ends a row.
  const lines = readFileSync(path, 'utf8').split('\n')
  for (const [index, line] of lines.entries()) {
    if (line.trim() === '') continue
    const outcome = await check(line, folder, prepared)
    const kind = kindOf(outcome)
    counts[kind] += 1
    if (kind === 'failed') differences.push(`  line ${index + 1}: ${outcome}`)
    if (kind === 'byDecision') note(notes, `by decision ${outcome.byDecision}`)
    if (kind === 'skipped') note(notes, `skipped for want of ${outcome.skipped}`)
  }
  return report(path, counts, notes, differences)
}

async function check(line, folder, prepared) {
  try {
    const value = JSON.parse(line)
    const adapter = ADAPTERS.find((candidate) => candidate.matches(value))
    if (adapter === undefined) return `no adapter knows a row of ${Object.keys(value).join(', ')}`
    if (!prepared.has(adapter)) prepared.set(adapter, await adapter.prepare(folder))
    let texts
    const raw = (name) => {
      texts ??= members(line)
      return texts.get(name)
    }
    return await adapter.check({ value, raw }, prepared.get(adapter))
  } catch (error) {
    return error instanceof Error ? (error.stack ?? error.message) : String(error)
  }
}

function kindOf(outcome) {
  if (outcome === undefined) return 'passed'
  if (typeof outcome === 'string') return 'failed'
  return 'byDecision' in outcome ? 'byDecision' : 'skipped'
}

function note(notes, text) {
  notes.set(text, (notes.get(text) ?? 0) + 1)
}

function report(path, { passed, failed, byDecision, skipped }, notes, differences) {
  const isEmpty = passed + failed + byDecision + skipped === 0
  const rest = `${byDecision ? `, ${byDecision} by decision` : ''}${skipped ? `, ${skipped} skipped` : ''}`
  const lines = [`${path}: ${passed} passed, ${failed} failed${rest}`]
  if (isEmpty) lines.push('  the file must hold a row: got none')
  for (const [text, count] of notes) lines.push(`  ${count} ${text}`)
  lines.push(...differences.slice(0, SHOWN_MAX))
  if (differences.length > SHOWN_MAX) lines.push(`  and ${differences.length - SHOWN_MAX} more`)
  process.stdout.write(`${lines.join('\n')}\n`)
  return failed > 0 || isEmpty
}
