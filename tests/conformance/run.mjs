/**
 * Compares Fulmar with golden rows: `node tests/conformance/run.mjs FILE.jsonl...`, which `npm run conform` starts.
 *
 * A file's topic is what its rows' schema says. Prints `FILE: N passed, N failed` and the first differences; exit status
 * 1 if a row failed, if a file has no rows, or if its schema has no adapter. With `--perturb` it tries the comparison itself, see
 * `perturb.mjs`.
 */

import { readFileSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { Judge, kindOf } from './judge.mjs'
import { perturb } from './perturb.mjs'

/** The number of differences that are shown for a file. */
const SHOWN_MAX = 5

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { perturb: { type: 'boolean' }, seed: { type: 'string' }, share: { type: 'string' } },
})
const files = positionals.map((path) => ({
  path,
  judge: new Judge(dirname(resolve(path))),
  lines: linesOf(path),
}))
if (values.perturb) process.exitCode = (await perturb(files, values)) ? 1 : 0
else {
  let failed = false
  for (const file of files) failed = (await conform(file)) || failed
  process.exitCode = failed ? 1 : 0
}

/** Texts hold U+2028 and the like, so only \n ends a row. */
function linesOf(path) {
  const lines = readFileSync(path, 'utf8').split('\n')
  return lines.map((line, at) => [line, at + 1]).filter(([line]) => line.trim() !== '')
}

/** Checks one file; true if it failed. */
async function conform({ path, judge, lines }) {
  const counts = { passed: 0, failed: 0, byDecision: 0, skipped: 0 }
  const notes = new Map()
  const differences = []
  for (const [line, number] of lines) {
    const outcome = await judge.judge(line)
    const kind = kindOf(outcome)
    counts[kind] += 1
    if (kind === 'failed') differences.push(`  line ${number}: ${outcome}`)
    if (kind === 'byDecision')
      for (const name of outcome.byDecision.split('; ')) note(notes, `by decision ${name}`)
    if (kind === 'skipped') note(notes, `SKIPPED for want of ${outcome.skipped}`)
  }
  return report(path, counts, notes, differences)
}

function note(notes, text) {
  notes.set(text, (notes.get(text) ?? 0) + 1)
}

function report(path, { passed, failed, byDecision, skipped }, notes, differences) {
  const isEmpty = passed + failed + byDecision + skipped === 0
  const rest = `${byDecision ? `, ${byDecision} by decision` : ''}${skipped ? `, ${skipped} skipped` : ''}`
  const lines = [`${path}: ${passed} passed, ${failed} failed${rest}`]
  if (isEmpty) lines.push('  the file must hold at least one row: got 0')
  for (const [text, count] of notes) lines.push(`  ${count} ${text}`)
  lines.push(...differences.slice(0, SHOWN_MAX))
  if (differences.length > SHOWN_MAX) lines.push(`  and ${differences.length - SHOWN_MAX} more`)
  process.stdout.write(`${lines.join('\n')}\n`)
  return failed > 0 || isEmpty
}
